//! Release files to modules: identity, pairing, debug information to one stream of functions.
