//! The parts of HTTP that more than one endpoint speaks.

mod answered;
mod body;
mod breakable;
mod broken;
mod client;
mod conditional;
pub(crate) mod cors;
mod drain;
mod encoding;
mod gathered;
mod host;
mod incoming;
mod listen;
mod map_sender;
mod page;
mod path;
mod peer;
mod range;
mod unsent;
mod unserved;

pub(crate) use answered::Answering;
pub(crate) use body::{FileAnswer, Source, file_response};
pub(crate) use breakable::Breakable;
pub(crate) use broken::{BreakConnection, break_connection};
pub(crate) use client::{choose_cryptography, client};
pub(crate) use conditional::{forbids_change, names_tag};
pub(crate) use drain::drain;
pub(crate) use encoding::{Coding, accepted_coding, content_coding};
pub(crate) use gathered::{Gathered, GrowingText, Memory, NoRoom, NotGathered, Share};
pub(crate) use host::{ONE_HOST, is_called_once, is_this_machine, name_of as name_of_host};
pub(crate) use incoming::Incoming;
pub(crate) use listen::listen;
pub(crate) use map_sender::MapSender;
pub(crate) use page::is_page;
pub(crate) use path::{form_values, percent_decode, percent_decode_lossy, percent_encode, query_values};
pub(crate) use peer::Peer;
pub(crate) use range::{ByteRange, parse_content_range};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use range::{Ranged, parse_range};
pub(crate) use unsent::Unsent;
pub(crate) use unserved::unserved;
