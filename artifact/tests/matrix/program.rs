use std::collections::{BTreeMap, HashMap};
use std::fmt;
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    Square(f64),
    Circle { radius: f64 },
}
impl Shape {
    fn area(&self) -> f64 {
        match self {
            Shape::Square(side) => side * side,
            Shape::Circle { radius } => 3.14 * radius * radius,
        }
    }
}
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:.2}", self, self.area())
    }
}
fn clamp<T: PartialOrd>(x: T, low: T, high: T) -> T {
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}
#[inline(never)]
fn words(count: usize) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for number in 0..count {
        *seen.entry(format!("word{}", number % 7)).or_default() += number;
    }
    let ordered: BTreeMap<usize, Vec<&String>> = seen.iter().fold(BTreeMap::new(), |mut all, (word, count)| {
        all.entry(*count).or_insert_with(Vec::new).push(word);
        all
    });
    ordered.values().rev().flat_map(|words| words.iter().map(|word| word.to_uppercase())).collect()
}
fn main() {
    let count = std::env::args().count();
    let mut shapes: Vec<Shape> = (0..count * 10)
        .map(|i| if i % 2 == 0 { Shape::Square(i as f64) } else { Shape::Circle { radius: i as f64 } })
        .collect();
    shapes.sort_by(|a, b| a.area().partial_cmp(&b.area()).unwrap());
    let total: f64 = shapes.iter().map(|shape| clamp(shape.area(), 0.0, 1e6)).sum();
    println!("{} {} {}", words(count * 20).join(" "), total, shapes[0]);
}
