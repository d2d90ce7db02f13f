//! The compact symbol table of one module: writer, reader, lookup.
