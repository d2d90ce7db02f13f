//! A JSON document, read into types by generic code that the compiler inlines at will; it stops at some depth.

use std::fmt;
use std::io;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

use super::parking::{Slot, park};
use super::waiting::awake;

const DEPTH: usize = 24;
const STOP_AT_DEPTH: usize = 17;

/// A part of the document.
#[derive(Deserialize)]
struct Node {
    name: String,
    weight: Weight,
    children: Vec<Node>,
}

/// A number that the document holds as text with a unit.
struct Weight(f64);

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Weight;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a weight such as \"12 kg\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Weight, E> {
                let (number, unit) = text.split_once(' ').ok_or_else(|| E::custom("a weight without a unit"))?;
                if unit == "stone" {
                    // Units that need thought.
                    park(awake);
                }
                number.parse().map(Weight).map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// Starts the thread.
pub(super) fn start() -> io::Result<&'static Slot> {
    Slot::spawn("parser", true, || {
        let text = document(0);
        let tree: Result<Node, serde_json::Error> = serde_json::from_reader(text.as_bytes());
        let weight = tree.map(|tree| total(&tree));
        assert!(weight.is_ok_and(|weight| weight > 0.0), "the document is one that can be read");
    })
    .map(|(slot, _)| slot)
}

fn document(depth: usize) -> String {
    let unit = if depth == STOP_AT_DEPTH { "stone" } else { "kg" };
    let children = if depth == DEPTH { String::new() } else { document(depth + 1) };
    format!(r#"{{"name":"part {depth}","weight":"{depth}.5 {unit}","children":[{children}]}}"#)
}

fn total(node: &Node) -> f64 {
    let named = if node.name.is_empty() { 0.0 } else { node.weight.0 };
    named + node.children.iter().map(total).sum::<f64>()
}
