//! `symseal explain unwind`: how the caller's registers follow at an address, and which record of the binary says so.

use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use serde_json::{Map, Value, json};
use symseal_bundle::{Digest, FileRole};
use symseal_module::{Proof, Rva, Svma};
use symseal_resolver::{Options, Resolver, Symbolized};
use symseal_unwind::{Arch, Kind, Rule, Saved, Slots, Source, SourceKind, Table as UnwindTable};

use super::Question;
use crate::bundle_ref;
use crate::commands::trace::resolve::proof;
use crate::exit::{Answer, NotFound};
use crate::frames::write_frame;
use crate::output::{out, outln, visible};
use crate::table::Table;

/// Say how the caller of an address is found: the rule in force there as equations, and the record of the binary that it was made of.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal explain unwind ./bundle 93ac61ec5a8eb1396f9fbd350e3169a558528a40 0x401136
  symseal explain unwind sha256:9f2c… 93ac61ec… 0x401136 --record        (all rules that were made of that record)
  symseal explain unwind ./bundle 93ac61ec… 0x401136 --trust ./trust --json

The address is a stated one (svma) and taken as it is; of a caller, whose address is the one behind its call, ask for the byte before. CFA is the canonical
frame address, RA the return address, [x] the word in memory at x. `readelf --debug-dump=frames` shows the record at the offset that is given here.
docs/unwinding.md explains the rest. Exit status 1: the address has no rule, or the bundle does not hold.")]
pub struct Args {
    #[command(flatten)]
    asked: Question,
    /// Show every rule that was made of the same record: the whole function, as a rule.
    #[arg(long)]
    record: bool,
}

/// A rule, and the addresses at which it is in force.
struct Row {
    start: Rva,
    end: Rva,
    rule: Rule,
    slots: Slots,
}

/// All that is told.
struct Found {
    module: String,
    arch: Arch,
    image_base: Svma,
    rva: Rva,
    named: Symbolized,
    /// The row of the address; none outside of the code.
    row: Option<Row>,
    source: Option<Source>,
    /// The rows of the record.
    record: Vec<Row>,
    /// The operations of the row's program, for a CFA that only a program gives.
    program: Vec<String>,
    /// What the compiler could not express or follow here.
    reason: Option<String>,
    proof: Proof,
    digests: Vec<(&'static str, Digest)>,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    let opened = bundle_ref::open(&args.asked.bundle, args.asked.store.as_ref())?;
    let Some(proof) = proof(&opened, &args.asked.seal)? else { return Ok(Answer::No) };
    let bundle = &opened.bundle;
    let (id, name) = (&args.asked.debug_id, visible(&args.asked.bundle).to_string());
    let lacks =
        |what: &str| NotFound(format!("bundle {name} has no {what} {id}; `symseal bundle inspect` lists what it has"));
    let module = bundle.module(id).ok_or_else(|| lacks("module"))?;
    let (module_name, image_base) = (module.name.clone(), module.image_base);
    let file = module.file(FileRole::UnwindTable).ok_or_else(|| lacks("unwind table of the module"))?;
    let bytes = bundle.read(file).with_context(|| format!("the unwind table of {id}"))?;
    let table = UnwindTable::open(&bytes).with_context(|| format!("the unwind table of {id}"))?;
    table.verify().with_context(|| format!("the unwind table of {id}"))?;

    let below = || NotFound(format!("{:#x} lies below the image base of {id}, {image_base}", args.asked.address));
    let rva = if args.asked.rva {
        Rva(args.asked.address)
    } else {
        Svma(args.asked.address).to_rva(image_base).ok_or_else(below)?
    };
    let of_bundle = bundle.digest().map(|digest| ("bundle", digest));
    let mut digests: Vec<_> = of_bundle.into_iter().collect();
    digests.extend([("symbol-index", bundle.index_digest()), ("unwind-table", file.sha256)]);
    digests.extend(file.derived_from.iter().map(|digest| ("source", *digest)));

    let options = Options { demangle: args.asked.demangle, ..Options::default() };
    let resolver = Resolver::new(options).with_bundle_access(opened.bundle, proof, opened.access);
    let source = table.source(rva);
    let row = rows(&table).find(|row| (row.start..row.end).contains(&rva));
    let operations = row.as_ref().into_iter().flat_map(|row| table.operations(row.rule));
    let program = operations.map(|operation| operation.display(table.arch()).to_string()).collect();
    let found = Found {
        module: module_name,
        arch: table.arch(),
        image_base,
        rva,
        named: resolver.symbolize(id, rva),
        row,
        program,
        reason: table.reason(rva).map(str::to_owned),
        source,
        record: source.filter(|_| args.record).map(|source| record(&table, source)).unwrap_or_default(),
        proof,
        digests,
    };
    if args.asked.json {
        outln!("{:#}", found.in_json(args))
    } else {
        found.tell()?
    }
    Ok(found.rule().is_some().into())
}

/// The rows of a table, each with its end.
fn rows<'t>(table: &'t UnwindTable<'_>) -> impl Iterator<Item = Row> + 't {
    let mut rows = table.rows().peekable();
    std::iter::from_fn(move || {
        let (start, rule, slots) = rows.next()?;
        let end = rows.peek().map_or(table.text_end(), |(next, ..)| *next);
        Some(Row { start, end, rule, slots })
    })
}

/// The rows of a record. A row may begin before it and end behind it, where neighbours say the same.
fn record(table: &UnwindTable<'_>, source: Source) -> Vec<Row> {
    let next = table.sources().map(|source| source.start).find(|start| *start > source.start);
    let end = next.unwrap_or(table.text_end());
    let of_record = rows(table).filter(|row| row.start < end && row.end > source.start && row.rule != Rule::GAP);
    of_record.map(|row| Row { start: row.start.max(source.start), end: row.end.min(end), ..row }).collect()
}

impl Found {
    /// The rule, where there is information.
    fn rule(&self) -> Option<Rule> {
        self.row
            .as_ref()
            .map(|row| row.rule)
            .filter(|rule| !matches!(rule.kind(), None | Some(Kind::Gap | Kind::Unsupported)))
    }

    fn svma(&self, rva: Rva) -> String {
        rva.to_svma(self.image_base).unwrap_or(Svma(rva.0)).to_string()
    }

    /// `CFA = …; RA = …` and the saved registers.
    fn equations(&self, row: &Row) -> String {
        let mut text = row.rule.display(self.arch).to_string();
        for (register, place) in self.saved(row).into_iter().filter(|(_, place)| place.starts_with('[')) {
            if !text.contains(&format!("{register} = [")) {
                text.push_str(&format!("; {register} = {place}"));
            }
        }
        text
    }

    /// Where the caller's registers are, the frame pointer first: empty where the rule finds no caller by its equations.
    fn saved(&self, row: &Row) -> Vec<(&'static str, String)> {
        if matches!(
            row.rule.kind(),
            None | Some(Kind::Gap | Kind::End | Kind::Signal | Kind::MachineFrame | Kind::Unsupported)
        ) {
            return Vec::new();
        }
        let fp = self.arch.frame_pointer();
        let (base, origin) =
            if row.rule.slots_on_fp() { (self.arch.register_name(fp), 0) } else { ("CFA", row.rule.origin()) };
        let place = |saved: Saved| match saved {
            Saved::Same => "unchanged".to_owned(),
            Saved::Unknown => "not known".to_owned(),
            Saved::At(words) => {
                format!("[{base}{:+}]", (i64::from(words) + origin) * i64::from(self.arch.word_bytes()))
            }
        };
        let slot = |register: &u8| Some((*register, row.slots.of(self.arch, *register)?));
        // Tables of other systems than Windows do not speak of these.
        let of_windows = self.arch.convention_registers().iter().filter_map(slot);
        let of_windows = of_windows.filter(|(_, saved)| *saved != Saved::Unknown);
        let slots = self.arch.slot_registers().iter().filter_map(slot).chain(of_windows);
        let all = std::iter::once((fp, row.rule.frame_pointer())).chain(slots);
        all.map(|(register, saved)| (self.arch.register_name(register), place(saved))).collect()
    }

    fn tell(&self) -> Result<()> {
        let address = self.svma(self.rva);
        let mut line = Vec::new();
        match self.named.frames.last() {
            Some(function) => write_frame(&mut line, &self.named, function)?,
            None => line.extend_from_slice(b"??"),
        }
        outln!("{address}  {} ({}, {})", String::from_utf8_lossy(&line), visible(&self.module), self.arch.code());
        outln!();
        let Some(row) = &self.row else {
            outln!("The table has no code at this address.");
            return Ok(());
        };
        let kind = row.rule.kind();
        if self.rule().is_none() {
            outln!("{}: {}", if kind == Some(Kind::Gap) { "gap" } else { "not used" }, row.rule.display(self.arch));
        }
        let mut equations = Table::new(&["the caller's", "is"]);
        for equation in row.rule.display(self.arch).to_string().split("; ").filter(|_| self.rule().is_some()) {
            let (left, right) = equation.split_once(" = ").unwrap_or(("registers", equation));
            // `a leaf: CFA = …`
            let (what, left) = left.split_once(": ").map_or((None, left), |(what, left)| (Some(what), left));
            if left == "CFA" || left == "RA" || left == "registers" {
                let of = what.map(|what| format!(" ({what})")).unwrap_or_default();
                equations.row([left.to_owned(), format!("{right}{of}")]);
            }
        }
        for (register, place) in self.saved(row) {
            equations.row([register.to_owned(), place]);
        }
        if self.rule().is_some() {
            out!("{equations}");
        }
        if !self.program.is_empty() {
            outln!("\nprogram    {}; the CFA is on top", self.program.join("; "));
        }
        outln!("\nin force   from {} to {}", self.svma(row.start), self.svma(row.end));
        match self.source.filter(|_| kind != Some(Kind::Gap)) {
            Some(source) => outln!("made of    {}", self.record_of(source)),
            None => outln!("made of    nothing"),
        }
        if let Some(why) = self.why(kind) {
            outln!("because    {}", visible(&why));
        }
        if !self.record.is_empty() {
            outln!();
            let mut rows = Table::new(&["from", "to", "rule"]);
            for row in &self.record {
                rows.row([self.svma(row.start), self.svma(row.end), self.equations(row)]);
            }
            out!("{rows}");
        }
        outln!("\nproof    {}: {}", self.proof, self.proof.meaning());
        outln!("\nThe rule rests on");
        for (of, digest) in &self.digests {
            outln!("  {of:13}  {digest}");
        }
        Ok(())
    }

    /// Why the address has no rule, or its function not all of them.
    fn why(&self, kind: Option<Kind>) -> Option<String> {
        let is_gap = kind == Some(Kind::Gap);
        let unknown = || {
            let function = self.named.frames.last().and_then(|frame| frame.function.as_deref());
            Some(match function {
                Some(function) => format!("no record of the binary speaks of this part of {function}"),
                None => "no record of the binary and no function covers the address: padding, or data".to_owned(),
            })
        };
        self.reason.clone().or_else(|| if is_gap { unknown() } else { None })
    }

    /// The record in words.
    fn record_of(&self, source: Source) -> String {
        let (place, since) = (format!("{:#x}", source.offset), self.svma(source.start));
        let what = match source.kind {
            SourceKind::EhFrame => format!("the FDE at .eh_frame+{place}"),
            SourceKind::DebugFrame => format!("the FDE at .debug_frame+{place}"),
            SourceKind::Pdr => format!("the record at .pdr+{place}, and the function's instructions"),
            SourceKind::Plt => format!("the linkage table at {place}, by its instructions"),
            SourceKind::Trampoline => format!("the signal trampoline at {place}, by its instructions"),
            SourceKind::Instructions => format!("the instructions of the function at {place}"),
            kind => format!("{} {place}", kind.code()),
        };
        format!("{what}, used from {since} on")
    }

    fn in_json(&self, args: &Args) -> Value {
        let row = |row: &Row| {
            let registers: Map<String, Value> =
                self.saved(row).into_iter().map(|(register, place)| (register.to_owned(), place.into())).collect();
            json!({
                "start": self.svma(row.start),
                "end": self.svma(row.end),
                "kind": row.rule.kind().map(kind_code),
                "equations": row.rule.display(self.arch).to_string(),
                "registers": registers,
            })
        };
        let source = self.source.filter(|_| self.row.as_ref().is_some_and(|row| row.rule.kind() != Some(Kind::Gap)));
        let digests: Vec<Value> = self.digests.iter().map(|(of, digest)| json!({"of": of, "digest": digest})).collect();
        let mut all = json!({
            "debug_id": args.asked.debug_id,
            "address": self.svma(self.rva),
            "rva": self.rva,
            "arch": self.arch.code(),
            "function": self.named.frames.last().and_then(|frame| frame.function.as_deref()),
            "row": self.row.as_ref().map(row),
            "program": self.program,
            "reason": self.why(self.row.as_ref().and_then(|row| row.rule.kind())),
            "source": source.map(|source| json!({
                "kind": source.kind.code(),
                "offset": format!("{:#x}", source.offset),
                "start": self.svma(source.start),
            })),
            "proof": self.proof,
            "digests": digests,
        });
        if let Some(all) = all.as_object_mut().filter(|_| args.record) {
            all.insert("record".to_owned(), self.record.iter().map(row).collect());
        }
        all
    }
}

/// The kind as docs/formats/uwt.md calls it.
fn kind_code(kind: Kind) -> &'static str {
    match kind {
        Kind::Gap => "gap",
        Kind::End => "end",
        Kind::Sp => "sp",
        Kind::Fp => "fp",
        Kind::Register => "register",
        Kind::Deref => "deref",
        Kind::Plt => "plt",
        Kind::Signal => "signal",
        Kind::MachineFrame => "machine-frame",
        Kind::Leaf => "leaf",
        Kind::Program => "program",
        Kind::Unsupported => "unsupported",
    }
}
