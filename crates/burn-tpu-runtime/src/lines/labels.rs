//! Labels that name, beside the Burn op, the line of source that recorded it.
//!
//! XLA keeps a node's label as `op_name`, through fusion and scheduling. So the steps of a fit are recorded with such
//! labels, and what the compiler reports of an instruction leads back to the source.

use super::{Resolver, Stack, StepPart, StepPlace};
use burn_tpu_graph::Label;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

/// Between an op and its line. No name of an op contains it.
const AT: &str = " at ";

/// The labels of a device whose programs are recorded for a fit.
#[derive(Default)]
pub(crate) struct SourceLabels(Mutex<KnownLabels>);

#[derive(Default)]
struct KnownLabels {
    /// By op and stack.
    labels: FxHashMap<(Label, u64), Label>,
    resolver: Resolver,
}

impl SourceLabels {
    /// Returns the label of an op that the calling thread is about to record.
    pub(crate) fn label(&self, op: Label) -> Label {
        let stack = Stack::capture();
        let mut known = self.0.lock();
        let KnownLabels { labels, resolver } = &mut *known;
        let label = || interned(format!("{op}{AT}{}", described(&resolver.place(&stack))));
        labels.entry((op, stack.hash_of_frames())).or_insert_with(label)
    }
}

/// Returns a label's op and its line, which is empty if the label has none.
pub(crate) fn op_and_line(label: &str) -> (String, String) {
    let (op, line) = label.split_once(AT).unwrap_or((label, ""));
    (op.to_owned(), line.to_owned())
}

fn described(place: &StepPlace) -> String {
    let StepPlace { line, part, gradient_of } = place;
    let text = match (part, gradient_of) {
        (StepPart::Forward, _) => line.clone(),
        (StepPart::Backward, Some(op)) => format!("{line}, gradient of {op}"),
        (StepPart::Backward, None) => format!("{line}, backward pass"),
        (StepPart::Optimizer, _) => format!("{line}, optimizer"),
    };
    // The label is text between quotes.
    text.replace(['"', '\\'], "/").replace(char::is_control, " ")
}

/// Returns a label that lives as long as the process. There are as many as lines of source that record.
fn interned(label: String) -> Label {
    static LABELS: Mutex<Option<FxHashSet<Label>>> = Mutex::new(None);
    let mut labels = LABELS.lock();
    let labels = labels.get_or_insert_default();
    if let Some(known) = labels.get(label.as_str()) {
        return known;
    }
    let label: Label = label.leak();
    labels.insert(label);
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_names_the_part_of_the_step() {
        let place = |part, gradient_of: Option<&str>| {
            let (line, gradient_of) = ("src/a \"b\".rs:1 in f".to_owned(), gradient_of.map(str::to_owned));
            described(&StepPlace { line, part, gradient_of })
        };
        assert_eq!(place(StepPart::Forward, None), "src/a /b/.rs:1 in f");
        assert_eq!(place(StepPart::Backward, Some("float_exp")), "src/a /b/.rs:1 in f, gradient of float_exp");
        assert_eq!(place(StepPart::Optimizer, None), "src/a /b/.rs:1 in f, optimizer");
    }

    #[test]
    fn a_label_is_interned_once_and_taken_apart() {
        let label = || interned(format!("float_exp{AT}{}", "at home at 7"));
        assert!(std::ptr::eq(label(), label()));
        assert_eq!(op_and_line(label()), ("float_exp".into(), "at home at 7".into()));
        assert_eq!(op_and_line("float_exp"), ("float_exp".into(), String::new()));
    }
}
