//! The table of who may do what, in the house's own description: made from the one that decides.

use std::fs;
use std::path::Path;

use seqline::domain::ids::Kind;
use seqline::domain::membership::Role;
use seqline::domain::permission::{Act, Standing, may};

const COLUMNS: &[(&str, Kind, Standing)] = &[
    ("single: member", Kind::Single, Standing::Member(Role::Member)),
    ("group: owner", Kind::Group, Standing::Member(Role::Owner)),
    ("group: member", Kind::Group, Standing::Member(Role::Member)),
    ("group: moderator", Kind::Group, Standing::Admin),
    ("system: member", Kind::System, Standing::Member(Role::Member)),
    ("system: service", Kind::System, Standing::Service),
    ("system: moderator", Kind::System, Standing::Admin),
];

fn table() -> String {
    let head: Vec<&str> = COLUMNS.iter().map(|(name, ..)| *name).collect();
    let mut text = format!("| | {} |\n|---|{}\n", head.join(" | "), "---|".repeat(COLUMNS.len()));
    for act in Act::ALL {
        let cells: Vec<&str> = COLUMNS.iter().map(|(_, kind, standing)| if may(*act, *kind, *standing) { "yes" } else { "" }).collect();
        text.push_str(&format!("| {act:?} | {} |\n", cells.join(" | ")));
    }
    text
}

#[test]
fn the_described_permissions_are_those_that_decide() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ARCHITECTURE.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("<!-- permissions:begin -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- permissions:end -->").unwrap();
    let expected = format!("{before}<!-- permissions:begin -->\n{}<!-- permissions:end -->{after}", table());
    if std::env::var_os("SEQLINE_WRITE").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), expected, "run: SEQLINE_WRITE=1 cargo test --test it -- permissions");
}
