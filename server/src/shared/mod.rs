//! What servers share: facts in an object store, the sequence of changes by which they follow each other, and uploads whose
//! requests come to different servers.

mod facts;
mod follow;
mod not_here;
mod parts;
mod reread;

pub(crate) use facts::{FACT_LIMIT, Facts};
pub(crate) use follow::{Follower, follow, prune};
pub(crate) use not_here::look_elsewhere;
pub(crate) use parts::{Part, Parts, end};
