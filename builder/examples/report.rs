//! What is in some release files, as JSON, without building a bundle: `report PATH…`.

use std::error::Error;

use symseal_builder::{Options, SymbolBundleBuilder};

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options { name: "release".to_owned(), version: "1.0".to_owned(), progress: None };
    let builder =
        std::env::args_os().skip(1).fold(SymbolBundleBuilder::new(options), |builder, path| builder.add_path(path));
    println!("{}", serde_json::to_string_pretty(&builder.report()?)?);
    Ok(())
}
