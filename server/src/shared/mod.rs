//! What servers share: facts in an object store, the sequence of changes by which they follow each other, uploads whose
//! requests come to different servers, and the collection of what nothing names.

mod collection;
mod facts;
mod follow;
mod intents;
mod not_here;
mod parts;
mod pending;
mod promise;
mod reread;

pub(crate) use collection::collect;
pub(crate) use facts::{FACT_LIMIT, Facts};
pub(crate) use follow::{Follower, follow, prune};
pub(crate) use intents::{settle, tell_of_intents};
pub(crate) use not_here::look_elsewhere;
pub(crate) use parts::{Part, Parts, end};
pub(crate) use promise::{Promise, made_good};
