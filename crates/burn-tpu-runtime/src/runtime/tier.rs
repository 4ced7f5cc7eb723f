//! Where a recorded program runs: as a compiled program, in the interpreter on the host, or split between the two.
//!
//! The choice depends on sizes, on where values are, on what cut the program and on how often it came; never on time. So
//! the same run makes the same choices, and gives the same bits.
//!
//! 1. What only reads values on the host, and does little with them, is the host's: the device would wait for its inputs.
//! 2. A new program with little work is interpreted for as many runs as a compile takes, at most a hundred unless
//!    the compile takes seconds. On the CPU plugin, for some times as many: its code gains little there.
//! 3. A program of which only the host's part is new (a mask that is built row by row, a batch that is stacked item by item)
//!    is split: the host's part is interpreted, and the device's part is compiled once.
//! 4. So is a program that comes back with many small values to transfer, unless the compile of the rest takes longer than
//!    the transfers so far.
//! 5. A program that differs in sizes alone from two others runs as its family's program for a bucket of sizes. What is
//!    assembled from many new values of the user (a batch of sentences, each of its own length) is no part of it. The CPU
//!    plugin compiles a bucket for a size that fills most of it.
//! 6. Every other program is compiled at once, and in strict mode all are. So is one with a custom op: the interpreter would
//!    run its plain form, and its author wants to see the other one.
//! 7. But what makes the initial values of a first program (the weights that a first step draws, an input that a first call
//!    scales) is no part of it: the rest is the program that comes next. A program that comes again is divided again.

use super::DeviceRuntime;
use super::families::{BucketChoice, Member};
use super::padded::{Candidate, MeshCandidate};
use crate::Platform;
use crate::device::Described;
use crate::engine::{HostValue, Input, picked};
use crate::error::{Result, TpuError};
use crate::metrics::CutReason;
use crate::profile;
use crate::program::{CompiledProgram, Count, Packing, Recorded};
use burn_tpu_graph::{Beginning, Program, Split, Starts, TensorType, cost};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The most runs of a program in the interpreter before it is compiled, unless its compile is long.
const MOST_RUNS: u64 = 100;

/// The element operations that take a second. A compile that takes longer is earned by as many runs as take as long as it.
const LONG_COMPILE_WORK: u64 = 200_000_000;

/// How many times the time of a compile the interpreter works on a program before that, on the CPU plugin. The interpreter
/// is about as fast as an eager backend, so that a run of any length takes at most this part of its compile longer.
const COMPILES_EARNED_ON_CPU: u64 = 4;

/// The cost of a compile in element operations of the interpreter, each about 5 ns: 10 ms for any program, 1 ms for each
/// node, and 1.2 us for each pair of nodes, since XLA's CPU compiler is quadratic in the length of a program.
pub(super) const COMPILE_WORK: u64 = 2_000_000;
pub(super) const COMPILE_WORK_PER_NODE: u64 = 200_000;
const COMPILE_WORK_PER_PAIR: u64 = 240;

/// The element operations that take as long as the interpreter's own work for a node.
pub(super) const WORK_PER_NODE: u64 = 400;

/// The number of nodes from which a program is rewritten to see how many remain to compile.
const LONG_NODES: usize = 2_000;

/// The element operations on host values that take as long as one transfer.
const WORK_PER_TRANSFER: u64 = 20_000;

/// The most bytes that are fetched from the device for the interpreter.
const MOST_FETCHED_BYTES: usize = 1 << 20;

/// The same for the CPU plugin, whose memory is the host's. What is fetched there is kept on the host too.
const MOST_COPIED_BYTES: usize = 256 << 20;

/// The bytes that are copied in the time of an element operation.
const BYTES_PER_WORK: u64 = 20;

/// The number of transfers from which a program that comes back is split, so that its small values share one.
const MANY_TRANSFERS: usize = 4;

/// How often a program comes with many transfers before it is split: weights are transferred once, batches every time.
const OFTEN: u32 = 3;

/// Where a program runs.
pub(super) enum Tier {
    /// The program in memory.
    Compiled(Arc<CompiledProgram>),
    /// A program to compile; with it, one in memory whose assumptions do not hold.
    Compiler(Option<Arc<CompiledProgram>>),
    Interpreter,
    /// The program of a family for a bucket of sizes. If the program is split, its device's part is of the family.
    Member(Option<Arc<Split>>, Member),
    Split(Arc<Split>),
    /// What makes the program's initial values, and the rest.
    Begun(Arc<Beginning>),
}

/// Where the arguments of a program are.
struct Inputs<'b> {
    /// The recording's buffers.
    buffers: &'b [Input],
    /// The parameters whose values wait on the host for their transfer.
    waiting: Vec<u32>,
    /// Those of them that no program has read yet.
    new: Vec<u32>,
    /// The bytes of the values that are on the device alone.
    device_bytes: usize,
    count: usize,
}

impl DeviceRuntime {
    /// Returns where a program runs now, and counts the choice.
    ///
    /// # Errors
    /// Only a bug gives one: a split program that breaks an op's rule.
    pub(super) fn tier(
        &self,
        recorded: &Recorded,
        slots: &[u64],
        buffers: &[Input],
        (reason, starts): (CutReason, &dyn Fn() -> Starts),
    ) -> Result<Tier> {
        let found = self.open().cache.get(&recorded.program);
        let holds = |compiled: &Arc<CompiledProgram>| compiled.assumptions.hold(slots);
        let Some(least) = self.tiers_from() else {
            return Ok(match found {
                Some(compiled) if holds(&compiled) => Tier::Compiled(compiled),
                older => match self.member(recorded, slots, buffers) {
                    Some(member) => Tier::Member(None, member),
                    None => {
                        self.begun_or_whole((recorded, slots), &Inputs::of(recorded, buffers), older, reason, starts)?
                    }
                },
            });
        };
        let inputs = || Inputs::of(recorded, buffers);
        match found {
            Some(compiled) if holds(&compiled) => {
                // A step in memory has hundreds of arguments, and few values of the whole device wait.
                if self.open().counters.waiting_values.load(Relaxed) <= MANY_TRANSFERS as u64 {
                    return Ok(Tier::Compiled(compiled));
                }
                let split = self.split_of_transfers(recorded, &inputs())?;
                Ok(split.map_or(Tier::Compiled(compiled), Tier::Split))
            }
            older => {
                let inputs = inputs().with_device_bytes(recorded);
                self.tier_of_new(recorded, slots, &inputs, older, (reason, starts), least)
            }
        }
    }

    /// Returns the number of nodes from which programs may be interpreted; `None` if none may.
    pub(super) fn tiers_from(&self) -> Option<usize> {
        let possible = self.open().engine().is_ok_and(|engine| engine.transfers_values());
        self.open().options.interpreted_nodes().filter(|_| possible)
    }

    /// Returns whether ops on small values of the user may be computed when they are called. Not while each op's line or
    /// time matters.
    pub(crate) fn computes_at_once(&self) -> bool {
        self.tiers_from().is_some() && self.numerics().is_none() && profile::active().is_none()
    }

    /// Rule 4: returns the split form of a compiled program that comes back with many small values to transfer.
    fn split_of_transfers(&self, recorded: &Recorded, inputs: &Inputs) -> Result<Option<Arc<Split>>> {
        if inputs.waiting.len() <= MANY_TRANSFERS {
            return Ok(None);
        }
        let times = self.open().cache.count(Count::Transfers, &recorded.program);
        if times < OFTEN {
            return Ok(None);
        }
        // The rest of a split program has about as many nodes as the whole.
        let compile = self.compile_work(recorded.program.graph().len() as u64);
        let may_be_compiled = transfers_earn(compile, times, inputs.waiting.len());
        let split = self.split(recorded, inputs)?;
        let is_ready = |split: &Arc<Split>| {
            may_be_compiled && !self.compiler.is_frozen() || self.open().cache.get(&split.device.0).is_some()
        };
        Ok(split.filter(|split| split.transfers.len() < inputs.waiting.len()).filter(is_ready))
    }

    /// Returns the estimated work of compiling so many nodes.
    fn compile_work(&self, nodes: u64) -> u64 {
        let cap = self.open().options.program_cap as u64;
        let together = if cap == 0 { nodes } else { nodes.min(cap) };
        COMPILE_WORK + nodes * (COMPILE_WORK_PER_NODE + COMPILE_WORK_PER_PAIR * together)
    }

    /// Rules 1, 2, 3, 5 and 6, for a program that is not in memory.
    fn tier_of_new(
        &self,
        recorded: &Recorded,
        slots: &[u64],
        inputs: &Inputs,
        older: Option<Arc<CompiledProgram>>,
        (reason, starts): (CutReason, &dyn Fn() -> Starts),
        least: usize,
    ) -> Result<Tier> {
        let program = &recorded.program;
        let may_interpret = program.graph().len() >= least && reason != CutReason::MarkStep;
        let may_interpret = may_interpret && !program.summary().has_custom_calls;
        let is_refused = self.compiler.is_frozen() && self.open().cache.counted(Count::Interpreted, program) == 0;
        if may_interpret && !is_refused && inputs.are_on_host() && program.summary().work <= inputs.host_work() {
            self.open().cache.count(Count::Interpreted, program);
            return Ok(Tier::Interpreter);
        }
        if older.is_none()
            && let Some(beginning) = self.begun_before(recorded, &inputs.given(recorded, reason))
        {
            return Ok(Tier::Begun(beginning));
        }
        let assembly = self.assembly(recorded, inputs)?;
        let member = match &assembly {
            Some(assembly) => self.member_of(&assembly.device.0, &picked(&assembly.device.1.slots, slots)),
            None => self.member(recorded, slots, inputs.buffers),
        };
        if let Some(member) = member.as_ref().filter(|member| self.open().cache.get(&member.program).is_some()) {
            return Ok(Tier::Member(assembly, member.clone()));
        }
        let split = self.split(recorded, inputs)?.filter(|split| split.host_ops > 0);
        // Programs that differ in sizes or in the host's part alone are counted together.
        let of_split = split.as_ref().map_or(program, |split| &split.device.0);
        let family = member.as_ref().map_or(of_split, |member| &member.program);
        if may_interpret
            && let Some(copy) = self.work_to_fetch(inputs.device_bytes)
            && self.is_interpreted((program, slots), family, member.as_ref(), copy)
        {
            return Ok(Tier::Interpreter);
        }
        if let Some(member) = member {
            return Ok(Tier::Member(assembly, member));
        }
        match split.filter(|split| self.is_family_known(split)) {
            Some(split) => Ok(Tier::Split(split)),
            None => self.begun_or_whole((recorded, slots), inputs, older, reason, starts),
        }
    }

    /// Rules 6 and 7.
    fn begun_or_whole(
        &self,
        (recorded, slots): (&Recorded, &[u64]),
        inputs: &Inputs,
        older: Option<Arc<CompiledProgram>>,
        reason: CutReason,
        starts: &dyn Fn() -> Starts,
    ) -> Result<Tier> {
        if older.is_some() {
            return Ok(Tier::Compiler(older));
        }
        let given = inputs.given(recorded, reason);
        let starts =
            || Starts { is_first: inputs.are_of_user(recorded), only_drawn: reason != CutReason::MarkStep, ..starts() };
        if let Some(compiled) = self.undivided(recorded, slots)? {
            return Ok(Tier::Compiled(compiled));
        }
        let beginning = self.beginning(recorded, &given, starts)?;
        Ok(beginning.map_or(Tier::Compiler(None), Tier::Begun))
    }

    /// Rule 5: returns a program as one of its family.
    fn member(&self, recorded: &Recorded, slots: &[u64], buffers: &[Input]) -> Option<Member> {
        let axes = self.open().engine().ok().filter(|_| self.has_families())?.mesh();
        let on_mesh = axes.map(|axes| MeshCandidate { axes, recorded, buffers });
        let candidate = Candidate { runtime: self, on_mesh };
        self.families.member(&recorded.program, slots, &self.bucket_choice(), &self.open().counters, &candidate)
    }

    /// Returns a program that is not a recorded one as a whole, or not for known arguments, as one of its family. On a mesh
    /// there is none: a bucket's program is placed for its arguments.
    pub(super) fn member_of(&self, program: &Arc<Program>, slots: &[u64]) -> Option<Member> {
        let engine = self.open().engine().ok()?;
        if engine.mesh().is_some() || !self.has_families() {
            return None;
        }
        let candidate = Candidate { runtime: self, on_mesh: None };
        self.families.member(program, slots, &self.bucket_choice(), &self.open().counters, &candidate)
    }

    /// Returns whether programs of the device may be families. Not if it compiles nothing; and what is recorded for a fit
    /// is reported with its own sizes.
    fn has_families(&self) -> bool {
        let device = self.open().device;
        device.platform() != Platform::NdArray && !matches!(device.described(), Some(Described::Recording(..)))
    }

    /// Returns what buckets are chosen by now.
    pub(super) fn bucket_choice(&self) -> BucketChoice<'_> {
        let options = &self.open().options;
        BucketChoice {
            buckets: &options.shape_buckets,
            loops_at: self.compiler.loops_at(),
            is_frozen: self.compiler.is_frozen(),
            memory_limit: options.memory_limit,
        }
    }

    /// Returns the work of fetching so many bytes for the interpreter; `None` if they stay on the device.
    fn work_to_fetch(&self, bytes: usize) -> Option<u64> {
        match self.open().device.platform() {
            Platform::Cpu => (bytes <= MOST_COPIED_BYTES).then_some(bytes as u64 / BYTES_PER_WORK),
            _ => (bytes <= MOST_FETCHED_BYTES).then_some(0),
        }
    }

    /// Rule 2. A frozen device goes on interpreting what it has interpreted before, and refuses what is new. `copy` is the
    /// work of fetching its arguments.
    fn is_interpreted(
        &self,
        (program, slots): (&Arc<Program>, &[u64]),
        family: &Arc<Program>,
        member: Option<&Member>,
        copy: u64,
    ) -> bool {
        if self.compiler.is_frozen() {
            return self.open().cache.counted(Count::Interpreted, family) > 0;
        }
        let was_compiled =
            self.open().cache.assumed_before(program).is_some() || self.open().cache.get(family).is_some();
        if was_compiled {
            return false;
        }
        let work = program.summary().work + WORK_PER_NODE * program.graph().len() as u64 + copy;
        // The CPU plugin's code is not so much faster than the interpreter that it gains what the padding adds.
        let is_cpu = self.open().device.platform() == Platform::Cpu;
        if is_cpu && member.is_some_and(|member| member.is_much_more_than(work)) {
            self.open().cache.count(Count::Interpreted, family);
            return true;
        }
        let compile = self.compile_work(self.compiled_nodes(family, program, slots));
        let runs = runs_that_earn(compile, work, is_cpu);
        u64::from(self.open().cache.count(Count::Interpreted, family)) <= runs
    }

    /// Returns the number of nodes that a compiler would read. A long program may become a short one, with loops.
    fn compiled_nodes(&self, family: &Program, program: &Program, slots: &[u64]) -> u64 {
        let recorded = program.graph().len();
        if recorded < LONG_NODES {
            return recorded as u64;
        }
        let known = self.open().cache.counted(Count::Nodes, family);
        if known > 0 {
            return known.into();
        }
        let rewritten = self.compiler.rewrite(program, None, [slots].into_iter());
        let nodes = rewritten.map_or(recorded, |(program, _)| cost::nodes(&program));
        self.open().cache.note(Count::Nodes, family, u32::try_from(nodes).unwrap_or(u32::MAX));
        nodes as u64
    }

    /// Rule 3: returns whether the device's part is in memory, or came before with another host's part.
    fn is_family_known(&self, split: &Split) -> bool {
        self.open().cache.get(&split.device.0).is_some() || self.open().cache.count(Count::Family, &split.device.0) > 1
    }

    /// Returns the split form of a program if the host's part has little work.
    fn split(&self, recorded: &Recorded, inputs: &Inputs) -> Result<Option<Arc<Split>>> {
        let program = self.compiler.rounded(&recorded.program)?;
        let of = || Split::of(&program, |index| inputs.waiting.binary_search(&index).is_ok());
        let split = self.open().cache.split(&program, (Packing::Together, &inputs.waiting), of);
        Ok(with_little_work(split.map_err(|error| TpuError::Bug(error.to_string()))?))
    }

    /// Returns the split form of a program that is assembled from many new values of the user. Its device's part has a
    /// parameter for each value, so that it may be one of a family.
    fn assembly(&self, recorded: &Recorded, inputs: &Inputs) -> Result<Option<Arc<Split>>> {
        if inputs.new.len() <= MANY_TRANSFERS {
            return Ok(None);
        }
        let program = self.compiler.rounded(&recorded.program)?;
        let of = || Split::unpacked(&program, |index| inputs.new.binary_search(&index).is_ok());
        let split = self.open().cache.split(&program, (Packing::Alone, &inputs.new), of);
        let split = with_little_work(split.map_err(|error| TpuError::Bug(error.to_string()))?);
        Ok(split.filter(|split| split.host_ops > 0))
    }
}

/// Returns the number of runs in the interpreter, each of this work, that earn a compile: together they take as long as it.
fn runs_that_earn(compile: u64, work: u64, is_cpu: bool) -> u64 {
    let most = if compile < LONG_COMPILE_WORK { MOST_RUNS } else { u64::MAX };
    let compiles = if is_cpu { COMPILES_EARNED_ON_CPU } else { 1 };
    (compiles * compile / work.max(1)).min(most)
}

/// Returns whether so many runs with so many transfers earn a compile without them: a short one at once, another one once
/// the transfers have taken as long.
fn transfers_earn(compile: u64, runs: u32, transfers: usize) -> bool {
    compile < LONG_COMPILE_WORK || compile <= u64::from(runs) * transfers as u64 * WORK_PER_TRANSFER
}

/// Returns the split form of a program if the host's part has little work.
fn with_little_work(split: Option<Arc<Split>>) -> Option<Arc<Split>> {
    let work = |split: &Split| split.host.0.summary().work;
    let most = |split: &Split| (1 + split.host.0.graph().len() as u64) * WORK_PER_TRANSFER;
    split.filter(|split| work(split) <= most(split))
}

impl<'b> Inputs<'b> {
    fn of(recorded: &Recorded, buffers: &'b [Input]) -> Self {
        let places = &recorded.bindings.parameters;
        let value = |place: u32| buffers[place as usize].as_ref().ok().and_then(HostValue::of);
        let waits = |&index: &u32| value(places[index as usize]).is_some_and(HostValue::is_waiting);
        let waiting: Vec<u32> = (0..places.len() as u32).filter(waits).collect();
        let is_new = |index: &u32| value(places[*index as usize]).is_some_and(HostValue::is_new_input);
        let new = waiting.iter().copied().filter(is_new).collect();
        Self { buffers, waiting, new, count: places.len(), device_bytes: 0 }
    }

    /// Adds the bytes of the values that are on the device alone.
    fn with_device_bytes(mut self, recorded: &Recorded) -> Self {
        let bytes = |(index, ty): (u32, &TensorType)| {
            let buffer = &self.buffers[recorded.bindings.parameters[index as usize] as usize];
            let value = buffer.as_ref().ok().and_then(HostValue::of);
            if value.is_some_and(HostValue::is_on_host) { 0 } else { ty.bytes() }
        };
        self.device_bytes = recorded.program.parameters().map(bytes).sum();
        self
    }

    /// Returns the parameters that the user gave and no program has read, which may make initial values. Not in a step that
    /// a mark ends: a batch comes with each, whose program has always made it.
    fn given(&self, recorded: &Recorded, reason: CutReason) -> Vec<u32> {
        if reason == CutReason::MarkStep {
            return Vec::new();
        }
        let value = |place: u32| self.buffers[place as usize].as_ref().ok().and_then(HostValue::of);
        let places = (0..).zip(&recorded.bindings.parameters);
        let unread = places.filter(|&(_, &place)| value(place).is_some_and(HostValue::is_new_input));
        unread.map(|(index, _)| index).collect()
    }

    /// Returns whether the user gave the values of all inputs.
    fn are_of_user(&self, recorded: &Recorded) -> bool {
        let value = |place: &u32| self.buffers[*place as usize].as_ref().ok().and_then(HostValue::of);
        recorded.bindings.parameters.iter().all(|place| value(place).is_some_and(HostValue::is_of_user))
    }

    /// Returns whether there are inputs and all of their values are on the host.
    fn are_on_host(&self) -> bool {
        self.count > 0 && self.device_bytes == 0
    }

    /// Returns the element operations that take as long as the transfers of these inputs and one run on the device.
    fn host_work(&self) -> u64 {
        WORK_PER_TRANSFER * (1 + self.count as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compile_is_earned_by_runs_that_take_as_long() {
        let (short, long) = (LONG_COMPILE_WORK / 10, 2 * LONG_COMPILE_WORK);
        assert_eq!(runs_that_earn(short, short / 5, false), 5);
        assert_eq!(runs_that_earn(short, short + 1, false), 0, "a large program is compiled at once");
        assert_eq!(runs_that_earn(short, 1, false), MOST_RUNS);
        assert_eq!(runs_that_earn(long, long / 1000, false), 1000);
    }

    #[test]
    fn a_long_compile_is_earned_by_the_transfers_that_it_saves() {
        assert!(transfers_earn(LONG_COMPILE_WORK - 1, OFTEN, MANY_TRANSFERS + 1));
        let runs = (10 * LONG_COMPILE_WORK / (20 * WORK_PER_TRANSFER)) as u32;
        assert!(
            !transfers_earn(10 * LONG_COMPILE_WORK, runs - 1, 20) && transfers_earn(10 * LONG_COMPILE_WORK, runs, 20)
        );
    }

    #[test]
    fn on_the_cpu_plugin_a_compile_is_earned_by_more_runs() {
        let (short, long) = (LONG_COMPILE_WORK / 10, 2 * LONG_COMPILE_WORK);
        assert_eq!(runs_that_earn(short, short / 5, true), 5 * COMPILES_EARNED_ON_CPU);
        assert_eq!(runs_that_earn(short, COMPILES_EARNED_ON_CPU * short + 1, true), 0);
        assert_eq!(runs_that_earn(short, 1, true), MOST_RUNS);
        assert_eq!(runs_that_earn(long, long / 1000, true), 1000 * COMPILES_EARNED_ON_CPU);
    }
}
