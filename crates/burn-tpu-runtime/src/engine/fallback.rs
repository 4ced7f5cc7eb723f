//! Host fallback: nodes that an engine cannot lower run in the ndarray interpreter, all others on the device.
//!
//! The program is split into stages that alternate between device and host. A node belongs to the earliest stage in
//! which its operands are available. So the number of transfers depends on the longest chain of alternations, not on
//! the number of nodes.

use super::host::NdArrayEngine;
use super::host_nodes::{host_ops, is_for_host};
use super::{Arguments, Engine, Executable, Execution, MeshAxes, SharedBuffer, argument, downcast};
use crate::FallbackPolicy;
use crate::error::{Result, TpuError};
use crate::warnings;
use burn_tpu_graph::{Arrival, Graph, Node, NodeId, Op, Placement, Program, Rebuild, Sharding, TensorType};
use burn_tpu_interpreter::HostTensor;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Compiles a program for an engine. Nodes in `host` (by mnemonic) and nodes without a lowering become host stages.
///
/// # Errors
/// [`TpuError::FallbackDenied`] if there are such nodes and the policy denies them; the engine's own errors.
pub(crate) fn compile(
    engine: &Arc<dyn Engine>,
    program: &Program,
    host: &[String],
    policy: FallbackPolicy,
) -> Result<Box<dyn Executable>> {
    let on_host = |node: &Node| is_for_host(engine.as_ref(), host, node);
    let ops = host_ops(engine.as_ref(), program, host);
    if ops.is_empty() {
        return engine.compile(program);
    }
    match policy {
        FallbackPolicy::Deny => {
            let ops = ops.into_iter().collect::<Vec<_>>().join(", ");
            return Err(TpuError::FallbackDenied { device: engine.describe(), ops });
        }
        FallbackPolicy::Warn => warn_once(&engine.describe(), &ops),
        FallbackPolicy::Allow => {}
    }
    Staged::new(engine, program, on_host).map(|staged| Box::new(staged) as Box<dyn Executable>)
}

/// Warns once per op and device in each process.
fn warn_once(device: &str, ops: &BTreeSet<&'static str>) {
    static WARNED: Mutex<BTreeSet<(String, &'static str)>> = Mutex::new(BTreeSet::new());
    for &op in ops {
        if WARNED.lock().insert((device.to_owned(), op)) {
            warnings::warn(format_args!("{device} has no lowering of `{op}`, which runs on the host"));
        }
    }
}

/// A program that is split into stages.
struct Staged {
    engine: Arc<dyn Engine>,
    stages: Vec<Stage>,
    outputs: Vec<NodeId>,
    /// The parameter index of each parameter node.
    parameters: FxHashMap<NodeId, u32>,
    /// On a mesh, where the results live.
    placement: Option<Arc<Placement>>,
}

/// One stage. Its program reads `inputs` (nodes of the whole program) as parameters 0, 1, … and returns `outputs`.
struct Stage {
    executable: Box<dyn Executable>,
    inputs: Vec<(NodeId, TensorType)>,
    outputs: Vec<NodeId>,
    host_ops: Vec<&'static str>,
    /// On a mesh, where the inputs of a device's stage live.
    placement: Option<Arc<Placement>>,
}

impl Staged {
    fn new(engine: &Arc<dyn Engine>, program: &Program, on_host: impl Fn(&Node) -> bool) -> Result<Self> {
        let stages = assign(program.graph(), on_host);
        let count = stages.iter().copied().max().map_or(0, |last| last + 1);
        let crossing = crossing(program, &stages);
        let mut places = Places::of(engine.as_ref(), program);
        let new = |stage| Stage::new(engine, program, &stages, &crossing, stage, &mut places);
        let stages = (0..count).map(new).collect::<Result<_>>()?;
        let parameters = program.graph().nodes().iter().enumerate().filter_map(|(i, node)| match node.op {
            Op::Parameter { index, .. } => Some((NodeId(i as u32), index)),
            _ => None,
        });
        let parameters = parameters.collect();
        let (outputs, placement) = (program.outputs().to_vec(), program.placement().cloned());
        Ok(Self { engine: Arc::clone(engine), stages, outputs, parameters, placement })
    }
}

/// Returns the stage of every node. Even stages run on the device, odd stages on the host. Each stage builds the cheap
/// leaves that it reads again. A further result belongs to the stage of its node.
fn assign(graph: &Graph, on_host: impl Fn(&Node) -> bool) -> Vec<usize> {
    let mut stages = Vec::with_capacity(graph.len());
    for node in graph.nodes() {
        let earliest = node.operands.iter().map(|operand| stages[operand.index()]).max().unwrap_or(0);
        let follows = matches!(node.op, Op::GetResult { .. });
        let host = !follows && on_host(node);
        stages.push(if follows || (earliest % 2 == 1) == host { earliest } else { earliest + 1 });
    }
    stages
}

/// Returns whether each stage can build the node again, so that it is never transferred.
fn is_cheap_leaf(op: &Op) -> bool {
    op.is_leaf() && !matches!(op, Op::Parameter { .. })
}

/// Returns the nodes that a later stage or the caller needs.
fn crossing(program: &Program, stages: &[usize]) -> BTreeSet<NodeId> {
    let nodes = program.graph().nodes();
    let mut crossing: BTreeSet<NodeId> = program.outputs().iter().copied().collect();
    for (i, node) in nodes.iter().enumerate() {
        let later = node.operands.iter().filter(|operand| stages[operand.index()] != stages[i]);
        crossing.extend(later.filter(|operand| !is_cheap_leaf(&nodes[operand.index()].op)));
    }
    crossing.retain(|node| !matches!(nodes[node.index()].op, Op::Parameter { .. }));
    crossing
}

impl Stage {
    fn new(
        engine: &Arc<dyn Engine>,
        program: &Program,
        stages: &[usize],
        crossing: &BTreeSet<NodeId>,
        stage: usize,
        places: &mut Places,
    ) -> Result<Self> {
        let mut part = StageBuilder { new: Rebuild::new(program.graph()), inputs: Vec::new() };
        let is_own = |node: &NodeId| stages[node.index()] == stage;
        let outputs: Vec<NodeId> = crossing.iter().copied().filter(is_own).collect();
        for node in program.graph().ids().filter(is_own) {
            part.take(node, true).map_err(bug)?;
        }
        let part_program = part.program(&outputs).map_err(bug)?;
        let host = stage % 2 == 1;
        let part_program = if host { part_program } else { places.place(part_program, &part.inputs, &outputs) };
        let executable = if host { NdArrayEngine.compile(&part_program)? } else { engine.compile(&part_program)? };
        let ops = part_program.graph().nodes().iter().map(|node| &node.op);
        let counted = ops.filter(|op| !is_cheap_leaf(op) && !matches!(op, Op::Parameter { .. } | Op::GetResult { .. }));
        let host_ops = if host { counted.map(Op::mnemonic).collect() } else { Vec::new() };
        let placement = part_program.placement().cloned();
        Ok(Self { executable, inputs: part.inputs, outputs, host_ops, placement })
    }
}

/// On a mesh, where the values are that stages pass on. What a host stage computes is on the host.
struct Places<'p> {
    axes: Option<&'p MeshAxes>,
    on_mesh: FxHashMap<NodeId, Sharding>,
    /// Where the caller wants the results.
    results: FxHashMap<NodeId, Sharding>,
}

impl<'p> Places<'p> {
    fn of(engine: &'p dyn Engine, program: &Program) -> Self {
        let (mut on_mesh, mut results) = (FxHashMap::default(), FxHashMap::default());
        if let Some(placement) = program.placement() {
            for (node, id) in program.graph().nodes().iter().zip((0..).map(NodeId)) {
                if let Op::Parameter { index, .. } = node.op
                    && let Some(sharding) = placement.parameter(index)
                {
                    on_mesh.insert(id, sharding.clone());
                }
            }
            results.extend(program.outputs().iter().copied().zip(placement.results.iter().cloned()));
        }
        Self { axes: engine.mesh(), on_mesh, results }
    }

    /// Places the program of a device's stage.
    fn place(&mut self, part: Program, inputs: &[(NodeId, TensorType)], outputs: &[NodeId]) -> Program {
        let Some(axes) = self.axes else { return part };
        let arrival = |(node, _): &(NodeId, TensorType)| {
            self.on_mesh.get(node).map_or(Arrival::Host, |sharding| Arrival::Mesh(sharding.clone()))
        };
        let arrivals: Vec<Arrival> = inputs.iter().map(arrival).collect();
        let (mut placement, _) = Placement::of(&part, &axes.mesh, &axes.batch, &arrivals);
        for (node, sharding) in outputs.iter().zip(&mut placement.results) {
            if let Some(wanted) = self.results.get(node) {
                *sharding = wanted.clone();
            }
            self.on_mesh.insert(*node, sharding.clone());
        }
        part.placed(placement)
    }
}

/// Builds the graph of one stage from nodes of the whole program.
struct StageBuilder<'p> {
    new: Rebuild<'p>,
    inputs: Vec<(NodeId, TensorType)>,
}

impl StageBuilder<'_> {
    /// Adds a node of this stage (`own`) or of an earlier stage. A cheap leaf of an earlier stage is built again; any
    /// other node becomes a parameter.
    fn take(&mut self, id: NodeId, own: bool) -> burn_tpu_graph::Result<NodeId> {
        if let Some(known) = self.new.renamed.get(id) {
            return Ok(known);
        }
        let node = self.new.old().node(id);
        if matches!(node.op, Op::Parameter { .. }) || !(own || is_cheap_leaf(&node.op)) {
            let index = self.inputs.len() as u32;
            self.inputs.push((id, node.ty.clone()));
            return self.new.add(id, Op::Parameter { index, ty: node.ty.clone() }, &[]);
        }
        for &operand in &node.operands {
            self.take(operand, false)?;
        }
        self.new.copy(id)
    }

    fn program(&self, outputs: &[NodeId]) -> burn_tpu_graph::Result<Program> {
        Program::extract(&self.new.graph, &self.new.renamed.ids(outputs)?)
    }
}

impl Executable for Staged {
    fn execute(&self, arguments: &mut Arguments, slots: &[u64]) -> Result<Execution> {
        let mut values: FxHashMap<NodeId, SharedBuffer> = FxHashMap::default();
        for (&node, &index) in &self.parameters {
            values.insert(node, Arc::clone(argument(arguments, index)?));
        }
        let mut whole = Execution::default();
        for (i, stage) in self.stages.iter().enumerate() {
            let host = i % 2 == 1;
            let inputs = stage.inputs.iter().enumerate().map(|(i, (node, ty))| {
                let sharding = stage.placement.as_ref().and_then(|placement| placement.parameter(i as u32));
                self.move_to(host, &values[node], ty, sharding).map(Some)
            });
            let mut inputs = inputs.collect::<Result<Arguments>>()?;
            let mut done = stage.executable.execute(&mut inputs, slots)?;
            values.extend(stage.outputs.iter().copied().zip(std::mem::take(&mut done.outputs)));
            whole.add(Execution { host_ops: stage.host_ops.clone(), ..done });
        }
        let outputs = self.outputs.iter().enumerate();
        whole.outputs = outputs.map(|(i, node)| self.take_output(&mut values, i, *node)).collect::<Result<_>>()?;
        Ok(whole)
    }

    fn size_bytes(&self) -> u64 {
        self.stages.iter().map(|stage| stage.executable.size_bytes()).sum()
    }

    /// Host stages need no compiler, so they do not count.
    fn is_from_disk(&self) -> bool {
        self.stages.iter().step_by(2).all(|stage| stage.executable.is_from_disk())
    }
}

impl Staged {
    /// Returns the value on the side where the stage needs it.
    fn move_to(
        &self,
        host: bool,
        value: &SharedBuffer,
        ty: &TensorType,
        sharding: Option<&Sharding>,
    ) -> Result<SharedBuffer> {
        Ok(match (host, downcast::<HostTensor>(value)) {
            (true, Err(_)) => Arc::new(HostTensor::from_bytes(ty.clone(), self.engine.download(value)?)),
            (false, Ok(tensor)) => self.engine.upload(ty, tensor.to_bytes().into(), sharding)?,
            _ => Arc::clone(value),
        })
    }

    /// Returns an output of the program on the device.
    fn take_output(
        &self,
        values: &mut FxHashMap<NodeId, SharedBuffer>,
        result: usize,
        node: NodeId,
    ) -> Result<SharedBuffer> {
        let sharding = self.placement.as_ref().and_then(|placement| placement.results.get(result));
        let value = values.remove(&node).ok_or_else(|| TpuError::Bug(format!("no stage computed {node}")))?;
        match downcast::<HostTensor>(&value) {
            Ok(tensor) => self.engine.upload(tensor.ty(), tensor.to_bytes().into(), sharding),
            Err(_) => Ok(value),
        }
    }
}

fn bug(error: burn_tpu_graph::GraphError) -> TpuError {
    TpuError::Bug(error.to_string())
}
