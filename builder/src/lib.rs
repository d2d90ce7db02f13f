//! SymbolBundleBuilder: artifacts to a bundle, sealed and published.
