//! JSON forms: addresses as `0x` strings, ids and codes as their texts.

use alloc::borrow::Cow;
use alloc::string::ToString;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    Avma, DebugId, FileOffset, FrameEdge, MissReason, Proof, Quality, ResolverStep, Rva, StopReason, Svma, UnwindMethod,
};

macro_rules! text_form {
    ($($name:ident),*) => {
        $(
            impl Serialize for $name {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }

            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let text = Cow::<'de, str>::deserialize(deserializer)?;
                    text.parse().map_err(|error| D::Error::custom(alloc::format!("{:?}: {error}", text.to_string())))
                }
            }
        )*
    };
}

text_form!(
    Avma,
    Svma,
    Rva,
    FileOffset,
    DebugId,
    UnwindMethod,
    FrameEdge,
    StopReason,
    ResolverStep,
    MissReason,
    Quality,
    Proof
);
