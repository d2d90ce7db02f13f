//! Live processes: maps, map_files, vDSO.
