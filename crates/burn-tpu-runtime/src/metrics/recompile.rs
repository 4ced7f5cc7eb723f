//! The event of a compile of a program that is like an earlier one.

/// The kind of difference between a recording and the program that is most like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RecompileCause {
    /// The dims of a value.
    Shape,
    /// The element type of a value.
    DType,
    /// Another op, an op more or less, or other operands.
    NewOp,
    /// A number that is part of the graph: an axis, a permutation, a constant inside an op.
    StructuralConstant,
    /// The start of a slice or a range: it was a constant of the program and is a run-time scalar from now on.
    Offset,
    /// A run-time scalar that had been equal to others in its role and shared their input: it has an input of its own from
    /// now on.
    Scalar,
    /// The results that are needed of the same ops.
    LiveSet,
    /// How an argument is split over a mesh.
    Sharding,
    /// Compile options. They are fixed at a device's first use, so it does not occur yet.
    Options,
    /// The very program had been compiled, and left memory to make room or by `Backend::memory_cleanup`.
    Evicted,
}

impl std::fmt::Display for RecompileCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RecompileCause::Shape => "shape",
            RecompileCause::DType => "dtype",
            RecompileCause::NewOp => "new op",
            RecompileCause::StructuralConstant => "structural constant",
            RecompileCause::Offset => "offset",
            RecompileCause::Scalar => "scalar",
            RecompileCause::LiveSet => "live set",
            RecompileCause::Sharding => "sharding",
            RecompileCause::Options => "options",
            RecompileCause::Evicted => "evicted",
        })
    }
}

/// A compile of a program that is like an earlier one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Recompile {
    /// The kind of difference.
    pub cause: RecompileCause,
    /// The Burn op where they first differ, as `float_matmul`. Where no op differs, it is the last one of the program.
    pub op: &'static str,
    /// The line that recorded that op, or that had the program run, as `src/train.rs:41 in app::step`. The first line
    /// outside Burn, burn-tpu and the standard library; the name of the thread if there is none. `None` for
    /// [`RecompileCause::Evicted`], which no line is the cause of.
    pub location: Option<String>,
    /// The dim that differs, of values of one rank that differ in their dims.
    pub dim: Option<usize>,
    /// The sizes of that dim in the earlier program and in the new one.
    pub(crate) sizes: Option<[usize; 2]>,
    /// Whether the two recordings have the same ops, and differ in their dims alone.
    pub(crate) only_dims: bool,
    /// Whether an input of the program differs, such as a batch.
    pub(crate) input: bool,
    /// The line that first uploaded host data of that type.
    pub(crate) uploaded_at: Option<String>,
    /// The family of programs that the new one joined, whose program for a bucket of sizes was compiled for it:
    /// `family of programs like 3fa2b1c4d5e6f708 (5 nodes, float_mul), bucket [64]`. `None` for a program of its own.
    pub family: Option<String>,
    /// What the earlier program has there.
    pub old: String,
    /// What the new one has there.
    pub new: String,
    /// Recorded nodes of the new program.
    pub nodes: usize,
    /// The time of the compile in seconds, rewriting and lowering included.
    pub seconds: f64,
}

impl Recompile {
    /// Returns the text of the difference, without the cost of the compile.
    pub(crate) fn reason(&self) -> String {
        let Self { cause, op, old, new, .. } = self;
        let location = self.location.as_ref().map_or_else(String::new, |location| format!(" ({location})"));
        let input = match (self.input, &self.uploaded_at) {
            (true, Some(line)) => format!("an input of the program, first uploaded at {line}, "),
            (true, None) => "an input of the program, ".to_owned(),
            (false, _) => String::new(),
        };
        let family = self.family.as_ref().map_or_else(String::new, |family| format!("; joined the {family}"));
        format!("{cause} at {op}{location}: {input}{old} -> {new}{family}")
    }
}

impl std::fmt::Display for Recompile {
    /// `shape at float_matmul (src/train.rs:41 in app::step): f32[8,4] -> f32[9,4], 312 nodes, 0.214 s`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} nodes, {:.3} s", self.reason(), self.nodes, self.seconds)
    }
}
