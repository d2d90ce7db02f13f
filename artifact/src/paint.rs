//! Which of several overlapping ranges holds where.
