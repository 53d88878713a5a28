//! The README's tables say what the tables of the program say.

use std::fmt::Write;

use hadal::model::ARCHITECTURES;
use hadal::quant::FORMATS;
use hadal::simd::Isa;

fn models() -> String {
    let mut table = String::from("| architecture | models | graph |\n|---|---|---|\n");
    for row in ARCHITECTURES {
        writeln!(table, "| `{}` | {} | {} |", row.name, row.models, row.features)
            .expect("writing to a string");
    }
    table
}

fn formats() -> String {
    let mut table =
        String::from("| format | bits | block | runs | encode | AVX2 |\n|---|---|---|---|---|---|\n");
    let tick = |yes| if yes { "yes" } else { "" };
    for row in FORMATS {
        let vectorized = row.dot.as_ref().is_some_and(|dot| dot.arms.iter().any(|arm| arm.isa == Isa::Avx2));
        writeln!(
            table,
            "| `{}` | {} | {} in {} bytes | {} | {} | {} |",
            row.name,
            row.bits_per_weight(),
            row.block_len,
            row.block_bytes,
            tick(row.dot.is_some()),
            tick(row.has_encoder()),
            tick(vectorized)
        )
        .expect("writing to a string");
    }
    table
}

/// `HADAL_UPDATE=1 cargo test --test readme` writes the tables instead of comparing them.
#[test]
fn tables_are_true() {
    let mut readme = std::fs::read_to_string("README.md").expect("the README");
    let mut wrong = Vec::new();
    for (name, table) in [("models", models()), ("formats", formats())] {
        let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
        let start = readme.find(&open).expect("the table's opening mark") + open.len();
        let end = readme.find(&close).expect("the table's closing mark");
        if readme[start..end] != table {
            wrong.push(name);
            readme.replace_range(start..end, &table);
        }
    }
    if std::env::var_os("HADAL_UPDATE").is_some() {
        std::fs::write("README.md", readme).expect("a writable README");
    } else {
        assert!(
            wrong.is_empty(),
            "out of date: {wrong:?}; HADAL_UPDATE=1 cargo test --test readme writes them"
        );
    }
}
