//! Witnesses: who cosigns a log's checkpoints, each refusing a second history of the log (C2SP tlog-witness).
//!
//! [`WitnessedLog`] is a transparency log whose entries come back with cosignatures: it anchors in another log, has the
//! checkpoint cosigned, and puts the lines beside the log's own. Nothing else of the entry changes.

#[cfg(feature = "online")]
mod ask;
mod protocol;

#[cfg(feature = "online")]
pub use ask::CosignError;
pub use protocol::{
    WITNESS_ANSWER_LIMIT, WitnessAnswer, WitnessAnswerError, WitnessUrl, WitnessUrlError, parse_witness_answer,
};
#[cfg(feature = "online")]
pub use witnessed::{NoWitnesses, WitnessedLog, Witnesses};

#[cfg(feature = "online")]
mod witnessed;
