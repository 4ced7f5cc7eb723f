//! What the engines do with each kind of node of the graph.

use burn_tpu_xla::support::{Support, TABLE};
use std::fmt::Write;

/// The heading of the section, after those of the methods.
pub const HEADING: &str = "\n## Graph nodes on engines\n";

const TEXT: &str = "
The methods above compose these nodes. Plugins take all of them as StableHLO, and the interpreter runs all of them, so
the column is about the [crate `xla`](xla-rs.md): *builder* is one op of its `XlaBuilder`, *composed* several that give the
same result, *HLO text* a computation of one op that the graph calls, *structure* an input or a part of another node, and
*host* a node that runs on the host, counted. `tests/xla_rs` compares each of them with the interpreter, with every element
type.

";

/// The section.
pub fn render() -> String {
    let mut text = HEADING.to_owned() + TEXT;
    let words = [Support::Builder, Support::Composed, Support::HloText, Support::Structure];
    let count = |support: Support| TABLE.iter().filter(|(_, found)| *found == support).count();
    let counts: Vec<String> = words.iter().map(|&support| format!("{} {}", count(support), support.word())).collect();
    let _ =
        write!(text, "{} kinds: {}, 0 host.\n\n| node | crate `xla` |\n|---|---|\n", TABLE.len(), counts.join(", "));
    for (mnemonic, support) in TABLE {
        let _ = writeln!(text, "| `{mnemonic}` | {} |", support.word());
    }
    text
}
