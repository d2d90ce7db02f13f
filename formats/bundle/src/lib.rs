//! symbol_index.json, page hashes, OCI manifests and layout.
