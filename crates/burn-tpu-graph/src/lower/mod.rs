//! Lowering: turns a program into StableHLO text, node by node, in the quoted generic form.
//!
//! Invariants: the text depends only on the program and the labels of its nodes, and is the same in every run; node `n`
//! of the program is value `%n` of the text, so that the two can be read side by side (intermediate values of a lowering
//! are `%t0`, `%t1`, …). One function per family returns the op that yields the node's results; plain unary, binary and
//! conversion ops need none. The body of a loop is a private function that the loop's region calls, so that its values
//! have their own names, and so are a draw of random bits and a custom call that is no kernel (XLA inlines all three). A
//! parameter that a result updates is marked as an alias of that result; the call decides whether it donates the parameter.

mod constant;
mod contract;
mod control;
mod custom_call;
mod division;
mod erf;
mod exchanged;
mod in_place;
mod index;
mod movement;
mod partitioned;
mod printer;
mod region;
mod separate;
mod sharding;
mod slots;
mod subnormal;
pub(crate) mod threefry;

use crate::op::{BinaryOp, MemorySpace, UnaryOp};
use crate::{DType, Graph, GraphError, Label, Mesh, Node, NodeId, Op, Placement, Program, Result, TensorType};
use in_place::Layouts;
use printer::{Block, Statement, Value, list, mlir_type};
use sha2::{Digest, Sha256};

pub use slots::pack_slots;

/// A program as StableHLO text, with the arguments and results of its `@main`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// The module.
    pub text: String,
    /// The arguments of `@main`, in order.
    pub arguments: Vec<Argument>,
    /// The types of the results, in order.
    pub results: Vec<TensorType>,
    /// Where they are, in the same order.
    pub memories: Vec<MemorySpace>,
}

impl Lowered {
    /// Returns a hash of the text that is the same in every process. Locations are not hashed: they name the op that
    /// a line was recorded for and do not change the code.
    pub fn stable_hash(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        for line in self.text.lines() {
            hasher.update(printer::without_location(line));
            hasher.update("\n");
        }
        hasher.finalize().into()
    }
}

/// One argument of `@main`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A device buffer that the caller passes.
    Parameter {
        /// Position among the buffers of the recording.
        index: u32,
        /// The buffer's type.
        ty: TensorType,
        /// The result, of the same type, that takes the buffer's memory when the call donates it.
        result: Option<usize>,
        /// Where the buffer is: in the host's memory, if the result is.
        memory: MemorySpace,
    },
    /// Run-time scalars, packed into one upload; never donated. [`pack_slots`] makes its bytes.
    Slots {
        /// `i32[n]`, `i64[n]` or `f64[n]`.
        ty: TensorType,
        /// For each element of the upload: its position among the slots of the recording, and its element type.
        slots: Vec<(u32, DType)>,
    },
}

impl Argument {
    /// Returns the result that takes a parameter's memory, if one does; `None` for slots.
    pub fn in_place(&self) -> Option<Option<usize>> {
        match self {
            Argument::Parameter { result, .. } => Some(*result),
            Argument::Slots { .. } => None,
        }
    }

    /// Returns the type of the buffer to pass.
    pub fn ty(&self) -> &TensorType {
        match self {
            Argument::Parameter { ty, .. } | Argument::Slots { ty, .. } => ty,
        }
    }

    /// Returns the type of the part of the argument that each device has.
    pub fn local(&self, program: &Program) -> TensorType {
        match (self, program.placement()) {
            (Argument::Parameter { index, ty, .. }, Some(placement)) => {
                placement.parameter(*index).map_or_else(|| ty.clone(), |sharding| sharding.local(ty, &placement.mesh))
            }
            _ => self.ty().clone(),
        }
    }
}

/// What a program is lowered for. The default is any platform, and arguments that a call may donate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowerOptions {
    /// Whether libtpu compiles. Kernels are lowered as calls then, instead of their plain forms; in a program of a mesh of
    /// several devices, those without a [`Partition`](crate::Partition) never are. What a loop updates in place keeps the
    /// layout of its argument.
    pub kernels: bool,
    /// Whether arguments stay the caller's: no result takes the memory of one.
    pub keeps_arguments: bool,
    /// Whether LLVM compiles the loops that ops are fused to, as XLA's CPU compiler has it do.
    pub llvm: bool,
    /// Whether devices have a memory of their own beside the host's, so that values move between the two.
    pub host_memory: bool,
}

/// Lowers a program to StableHLO text that every plugin takes.
///
/// # Errors
/// Fails if a node has no form in StableHLO. A verified program has no such node.
pub fn lower(program: &Program) -> Result<Lowered> {
    lower_with(program, LowerOptions::default())
}

/// Lowers a program to StableHLO text.
///
/// # Errors
/// Those of [`lower`].
pub fn lower_with(program: &Program, options: LowerOptions) -> Result<Lowered> {
    let in_place = match options.keeps_arguments {
        true => vec![None; program.parameters().count()],
        false => program.results_in_place(),
    };
    let memory = |&result: &NodeId| match program.graph().node(result).op {
        Op::MoveTo(memory) if options.host_memory => memory,
        _ => MemorySpace::Device,
    };
    let memories: Vec<MemorySpace> = program.outputs().iter().map(memory).collect();
    let mut arguments = parameters(program, in_place, &memories);
    let packing = slots::Packing::new(program, arguments.len());
    arguments.extend(packing.arguments());
    let mesh = program.placement().map(|placement| &placement.mesh);
    let LowerOptions { kernels, llvm, host_memory, .. } = options;
    let scope = Scope { mesh, kernels, llvm, host_memory, label: None };
    let mut functions = Vec::new();
    let layouts = if kernels { Layouts::of(program, &arguments) } else { Layouts::default() };
    let (block, results) = Lowering::run(program, packing, scope, layouts, &mut functions)?;
    let shardings = sharding::Shardings::of(program, &arguments);
    let takes = list(arguments.iter().enumerate().map(|argument| argument_text(argument, &shardings)));
    let result = |(i, value): (usize, &Value)| {
        let attributes = memory_attribute(memories[i]).into_iter().chain(shardings.result(i));
        mlir_type(&value.ty) + &in_braces(attributes.collect())
    };
    let gives = list(results.iter().enumerate().map(result));
    functions.insert(0, function("@main", &takes, &gives, block, &results));
    let text = format!("module @program {{\n{}{}}}\n", shardings.mesh(), functions.concat());
    Ok(Lowered { text, arguments, results: results.into_iter().map(|value| value.ty).collect(), memories })
}

/// Returns the parameters. One that a result updates, as `in_place` says, gives it its memory if both are placed alike.
fn parameters(program: &Program, in_place: Vec<Option<usize>>, memories: &[MemorySpace]) -> Vec<Argument> {
    let placement = program.placement();
    let alike = |index: u32, result: usize| {
        placement.is_none_or(|placement| placement.parameter(index) == placement.results.get(result))
    };
    let parameters = program.parameters().zip(in_place);
    let argument = |((index, ty), result): ((u32, &TensorType), Option<usize>)| {
        let result = result.filter(|&result| alike(index, result));
        let memory = result.map_or(MemorySpace::Device, |result| memories[result]);
        Argument::Parameter { index, ty: ty.clone(), result, memory }
    };
    parameters.map(argument).collect()
}

/// Returns the text of a function of the module. `name` includes the visibility.
fn function(name: &str, takes: &str, gives: &str, mut block: Block, results: &[Value]) -> String {
    block.finish("func.return", results);
    format!("  func.func {name}({takes}) -> ({gives}) {{\n{}  }}\n", block.text())
}

fn argument_text((position, argument): (usize, &Argument), shardings: &sharding::Shardings) -> String {
    let (memory, alias) = match argument {
        Argument::Parameter { result, memory, .. } => {
            (memory_attribute(*memory), result.map(|result| format!("tf.aliasing_output = {result} : i32")))
        }
        Argument::Slots { .. } => (None, None),
    };
    let attributes = memory.into_iter().chain(alias).chain(shardings.argument(position));
    format!("%arg{position}: {}{}", mlir_type(argument.ty()), in_braces(attributes.collect()))
}

/// Returns the attribute of an argument or a result that is not in the device's memory.
fn memory_attribute(memory: MemorySpace) -> Option<String> {
    (memory != MemorySpace::Device).then(|| format!("mhlo.memory_kind = {:?}", memory.name()))
}

fn in_braces(attributes: Vec<String>) -> String {
    if attributes.is_empty() { String::new() } else { format!(" {{{}}}", attributes.join(", ")) }
}

/// What a function is written for.
#[derive(Clone, Copy, Default)]
struct Scope<'p> {
    mesh: Option<&'p Mesh>,
    /// Whether kernels are calls.
    kernels: bool,
    /// These two as in [`LowerOptions`].
    llvm: bool,
    host_memory: bool,
    /// The label of all ops of the function, instead of their own.
    label: Option<Label>,
}

/// The state of a lowering: the text written so far and the value of every node (its result 0).
struct Lowering<'p> {
    graph: &'p Graph,
    block: Block,
    values: Vec<Value>,
    packing: slots::Packing,
    scope: Scope<'p>,
    exchanged: exchanged::Exchanged,
    separate: separate::Separate,
    layouts: Layouts,
    /// Where a program with a loop is placed, and for each node whether its dim 0 is that of a batch.
    batches: Option<(&'p Placement, Vec<bool>)>,
    /// The functions written so far: bodies of loops, draws of random bits, custom calls.
    functions: &'p mut Vec<String>,
}

impl<'p> Lowering<'p> {
    /// Returns the block of a function that computes the program, and its results.
    fn run(
        program: &'p Program,
        packing: slots::Packing,
        scope: Scope<'p>,
        layouts: Layouts,
        functions: &'p mut Vec<String>,
    ) -> Result<(Block, Vec<Value>)> {
        let graph = program.graph();
        let exchanged = exchanged::Exchanged::of(program, scope.mesh.is_some());
        let separate = separate::Separate::of(graph, scope.llvm);
        let has_loop = graph.nodes().iter().any(|node| matches!(node.op, Op::For { .. }));
        let placement = program.placement().filter(|placement| has_loop && !placement.batch.is_empty());
        let batches = placement.map(|placement| (&**placement, placement.batches(program)));
        let (block, values) = (Block::function(), Vec::new());
        let mut lowering =
            Self { graph, block, values, packing, scope, exchanged, separate, layouts, batches, functions };
        let mut parameters_seen = 0;
        for (i, node) in graph.nodes().iter().enumerate() {
            let id = NodeId(i as u32);
            lowering.block.set_label(scope.label.unwrap_or_else(|| graph.label(id)));
            let value = lowering.node(id, node, &mut parameters_seen)?;
            let value = lowering.layouts.kept(&mut lowering.block, id, value);
            lowering.values.push(value);
        }
        let results = lowering.operands(program.outputs())?;
        Ok((lowering.block, results))
    }

    fn operands(&self, ids: &[NodeId]) -> Result<Vec<Value>> {
        ids.iter().map(|id| self.value(*id).cloned()).collect()
    }

    fn value(&self, id: NodeId) -> Result<&Value> {
        self.values.get(id.index()).ok_or_else(|| GraphError {
            op: "graph.lower",
            operands: id.to_string(),
            rule: "an operand must precede its user".into(),
        })
    }

    /// Writes a node's text and returns the value of its result 0.
    fn node(&mut self, id: NodeId, node: &Node, parameters_seen: &mut usize) -> Result<Value> {
        match &node.op {
            Op::Parameter { ty, .. } => {
                let value = Value::new(format!("%arg{parameters_seen}"), ty.clone());
                *parameters_seen += 1;
                Ok(value)
            }
            Op::GetResult { index: 0 } => self.first_operand(node).cloned(),
            Op::ShardingConstraint(_) if self.scope.mesh.is_none() => self.first_operand(node).cloned(),
            Op::MoveTo(_) if !self.scope.host_memory => self.first_operand(node).cloned(),
            Op::GetResult { index } => {
                let of = node.operands.first().copied().unwrap_or(id);
                Ok(Value::new(format!("{of}#{index}"), node.ty.clone()))
            }
            Op::CustomCall(call) => {
                let operands = self.operands(&node.operands)?;
                let label = self.scope.label.unwrap_or_else(|| self.graph.label(id));
                let statement = self.custom_call(call, operands, label)?;
                Ok(self.assign(id, node, &statement))
            }
            Op::For { trips, body } => {
                let mut operands = self.operands(&node.operands)?;
                self.split_batches(&node.operands, &mut operands);
                let layouts = self.layouts.of_body(id);
                let function = control::body_function(body, self.scope, layouts, self.functions)?;
                let statement = control::counted_loop(&mut self.block, operands, *trips, body, &function);
                let more = control::more_results(*trips);
                let results: Vec<_> = node.result_types().chain(&more).collect();
                self.block.assign(&id.to_string(), &statement, &results);
                Ok(Value::new(format!("{id}#0"), node.ty.clone()))
            }
            op => {
                let mut operands = self.operands(&node.operands)?;
                for (i, operand) in operands.iter_mut().enumerate() {
                    let place = (self.graph, id, i);
                    *operand = self.separate.operand(&mut self.block, place, operand.clone(), self.functions);
                }
                let statement = self.statement(id, op, operands, node)?;
                Ok(self.assign(id, node, &statement))
            }
        }
    }

    /// Tells the partitioner which carries of a loop are batches. It would else choose by what the body does with them,
    /// and may split the sums of every product instead.
    fn split_batches(&mut self, ids: &[NodeId], carries: &mut [Value]) {
        let Some((placement, batches)) = &self.batches else { return };
        for (id, carry) in ids.iter().zip(carries) {
            if batches[id.index()] {
                *carry = sharding::split_batch(&mut self.block, carry.clone(), placement);
            }
        }
    }

    /// Writes the op that yields a node's results, and returns the value of result 0.
    fn assign(&mut self, id: NodeId, node: &Node, statement: &Statement) -> Value {
        let results: Vec<_> = node.result_types().collect();
        self.block.assign(&id.to_string(), statement, &results);
        let name = if node.more.is_empty() { id.to_string() } else { format!("{id}#0") };
        Value::new(name, node.ty.clone())
    }

    /// Returns the op that draws random bits.
    fn draw(&mut self, state: Vec<Value>, bits: &[TensorType]) -> Result<Statement> {
        let function = bits.first().map_or(Ok(None), |ty| threefry::function(ty, self.functions))?;
        Ok(match function {
            Some(function) => Statement::new("func.call", state).attr("callee", function),
            None => movement::rng_bit_generator(state),
        })
    }

    fn first_operand(&self, node: &Node) -> Result<&Value> {
        self.value(node.operands.first().copied().unwrap_or(NodeId(u32::MAX)))
    }

    /// Returns the op that yields the node's results. Ops that it depends on are written to the block.
    fn statement(&mut self, id: NodeId, op: &Op, operands: Vec<Value>, node: &Node) -> Result<Statement> {
        let block = &mut self.block;
        if let Some(statement) = self.exchanged.lower(block, id, &operands, node)? {
            return Ok(statement);
        }
        let plain = |operands| Ok(Statement::new(op.mnemonic(), operands));
        match op {
            Op::Binary(_) if division::may_divide_by_zero(self.graph, node) => {
                Ok(division::divide(block, op.mnemonic(), operands))
            }
            Op::Unary(UnaryOp::Erf) if self.scope.llvm && erf::ends_below_one(node.ty.dtype) => {
                Ok(erf::erf(block, operands))
            }
            _ if self.scope.llvm && subnormal::takes_them_as_they_are(node) => {
                Ok(subnormal::function(block, op.mnemonic(), operands))
            }
            // XLA would add `i1` constants in one bit, so this is an `or`.
            Op::Binary(BinaryOp::Add) if self.graph.ty(id).dtype == DType::Bool => {
                Ok(Statement::new(BinaryOp::Or.mnemonic(), operands))
            }
            Op::Slot { .. } | Op::Offset { .. } => self.packing.unpack(id, block),
            Op::Constant(literal) => Ok(constant::constant(block, literal)),
            Op::Iota { dim, .. } => Ok(movement::iota(*dim)),
            Op::Unary(_)
            | Op::Binary(_)
            | Op::IsFinite
            | Op::Select
            | Op::Clamp
            | Op::Convert { .. }
            | Op::BitcastConvert { .. }
            | Op::Reshape { .. }
            | Op::DynamicUpdateSlice
            | Op::Complex
            | Op::Real
            | Op::Imag
            | Op::OptimizationBarrier => plain(operands),
            Op::Compare(direction) => Ok(region::compare(*direction, operands)),
            Op::BroadcastInDim { mapping, .. } => Ok(movement::broadcast_in_dim(operands, mapping)),
            Op::Transpose { permutation } => Ok(movement::transpose(operands, permutation)),
            Op::Reverse { dims } => Ok(movement::reverse(operands, dims)),
            Op::Slice(attrs) => Ok(movement::slice(operands, attrs)),
            Op::Pad(attrs) if self.scope.mesh.is_some() => Ok(partitioned::pad(block, operands, attrs)),
            Op::Pad(attrs) => Ok(movement::pad(operands, attrs)),
            Op::Concatenate { dim } => Ok(movement::concatenate(operands, *dim)),
            Op::Fft { kind, length } => Ok(movement::fft(operands, *kind, *length)),
            Op::RngBitGenerator { .. } => self.draw(operands, &node.more),
            Op::DynamicSlice { sizes } => Ok(index::dynamic_slice(operands, sizes)),
            Op::Gather(attrs) => Ok(index::gather(operands, attrs)),
            Op::Scatter(attrs) => Ok(index::scatter(operands, attrs)),
            Op::DotGeneral(attrs) => contract::dot_general(block, operands, attrs, &node.ty),
            Op::Convolution(attrs) => Ok(contract::convolution(operands, attrs)),
            Op::Reduce { combine, dims } if self.scope.mesh.is_some() => {
                Ok(partitioned::reduce(block, operands, *combine, dims, &node.ty))
            }
            Op::Reduce { combine, dims } => Ok(region::reduce(block, operands, *combine, dims)),
            Op::ArgReduce { max, dim } => Ok(region::arg_reduce(block, operands, *max, *dim)),
            Op::ReduceWindow { combine, window } => Ok(region::reduce_window(block, operands, *combine, window)),
            Op::SelectAndScatter { window } => Ok(region::select_and_scatter(block, operands, window)),
            Op::Sort { dim, descending } => Ok(region::sort(operands, *dim, *descending)),
            Op::TopK { k } => Ok(region::top_k(block, operands, *k)),
            Op::ShardingConstraint(sharding) => Ok(sharding::constraint(operands, sharding, self.scope.mesh)),
            Op::MoveTo(memory) => Ok(movement::move_to(operands, *memory)),
            // Handled above.
            Op::Parameter { .. } | Op::For { .. } | Op::CustomCall(_) | Op::GetResult { .. } => plain(operands),
        }
    }
}
