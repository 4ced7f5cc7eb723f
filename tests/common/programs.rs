//! Runs programs of `burn-tpu-graph` without the backend: through the lowering, on the CPU plugin.

use burn_tpu_graph::corpus::Case;
use burn_tpu_graph::lower::{Argument, Lowered, lower, pack_slots};
use burn_tpu_graph::{DType, Number, Program, TensorType};
use burn_tpu_pjrt::{
    Buffer, Client, ClientOptions, CompileOptions, Device, ElementType, ExecuteOptions, LoadedExecutable, Plugin,
    PluginKind, TensorSpec, testing,
};
use std::path::PathBuf;

/// Returns the CPU plugin; `None` if it is missing and not required.
pub fn cpu_plugin() -> Option<Plugin> {
    testing::plugin(PluginKind::Cpu).map(loaded)
}

/// Returns libtpu where it can compile ahead of time; `None` elsewhere, if it is not required.
pub fn libtpu() -> Option<Plugin> {
    testing::libtpu().map(loaded)
}

fn loaded(file: PathBuf) -> Plugin {
    Plugin::load(file).expect("a plugin that was found must load")
}

/// Returns a client of the CPU plugin with one device.
pub fn client() -> Option<Client> {
    let plugin = cpu_plugin()?;
    Some(Client::new(plugin, &ClientOptions::cpu(1).unwrap()).unwrap())
}

/// Converts a type. Both enums name element types as StableHLO does.
pub fn spec(ty: &TensorType) -> TensorSpec {
    let element = ElementType::ALL.iter().find(|element| element.name() == ty.dtype.name());
    TensorSpec::new(*element.expect("every element type has a buffer type"), &ty.dims).unwrap()
}

pub fn pjrt_program(lowered: &Lowered) -> burn_tpu_pjrt::Program {
    let parameters = lowered.arguments.iter().map(|argument| spec(argument.ty()));
    burn_tpu_pjrt::Program::stablehlo(lowered.text.as_str(), parameters).unwrap()
}

/// Returns the backend's own options for the CPU plugin.
pub fn cpu_options() -> CompileOptions {
    burn_tpu_runtime::testing::CPU_COMPILER_FLAGS
        .into_iter()
        .fold(CompileOptions::default(), |options, (name, value)| options.set(name, value))
}

/// A program that the CPU plugin has compiled.
pub struct Compiled {
    lowered: Lowered,
    executable: LoadedExecutable,
    device: Device,
}

pub fn compile(client: &Client, program: &Program, options: &CompileOptions) -> Result<Compiled, String> {
    compile_lowered(client, lower(program).unwrap(), options)
}

pub fn compile_lowered(client: &Client, lowered: Lowered, options: &CompileOptions) -> Result<Compiled, String> {
    let executable = client.compile(&pjrt_program(&lowered), options).map_err(|error| error.to_string())?;
    Ok(Compiled { lowered, executable, device: client.device(0).unwrap() })
}

impl Compiled {
    /// Returns the bytes of the results. `parameters[i]` are the bytes of parameter `i`; a missing one is filled with
    /// zeros.
    pub fn run(&self, parameters: &[Vec<u8>], slots: &[u64]) -> Result<Vec<Vec<u8>>, String> {
        let outputs = self.execute(&self.upload(parameters, slots))?;
        outputs.iter().map(|output| output.to_host().map_err(|error| error.to_string())).collect()
    }

    /// Returns the arguments on the device. See [`Compiled::run`].
    pub fn upload(&self, parameters: &[Vec<u8>], slots: &[u64]) -> Vec<Buffer> {
        let upload = |argument: &Argument| {
            let bytes = match argument {
                Argument::Parameter { index, ty, .. } => {
                    parameters.get(*index as usize).cloned().unwrap_or_else(|| vec![0; ty.bytes()])
                }
                Argument::Slots { ty, slots: packed } => pack_slots(ty.dtype, packed, slots).unwrap(),
            };
            Buffer::from_host(&self.device, spec(argument.ty()), &bytes).unwrap()
        };
        self.lowered.arguments.iter().map(upload).collect()
    }

    /// Returns the results on the device, which may still be computing them.
    pub fn execute(&self, arguments: &[Buffer]) -> Result<Vec<Buffer>, String> {
        let arguments: Vec<&Buffer> = arguments.iter().collect();
        let outputs = self.executable.execute_single(&arguments, &ExecuteOptions::default());
        let outputs = outputs.map_err(|error| error.to_string())?;
        for (output, ty) in outputs.iter().zip(&self.lowered.results) {
            assert_eq!(**output.spec(), spec(ty));
        }
        Ok(outputs)
    }
}

/// Returns row-major elements of real floats as f64.
pub fn floats(dtype: burn_tpu_graph::DType, bytes: &[u8]) -> Vec<f64> {
    use burn_tpu_graph::DType as D;
    let each = |size: usize, read: fn(&[u8]) -> f64| bytes.chunks_exact(size).map(read).collect();
    match dtype {
        D::F64 => each(8, |b| f64::from_le_bytes(b.try_into().unwrap())),
        D::F32 => each(4, |b| f32::from_le_bytes(b.try_into().unwrap()).into()),
        D::BF16 => each(2, |b| half::bf16::from_le_bytes(b.try_into().unwrap()).into()),
        D::F16 => each(2, |b| half::f16::from_le_bytes(b.try_into().unwrap()).into()),
        other => panic!("{other} is no float"),
    }
}

/// Returns the largest relative difference between engines: a few roundings; for 16-bit floats those of a reduction that
/// accumulates in 16 bits because the graph says so.
fn tolerance(dtype: burn_tpu_graph::DType) -> f64 {
    match dtype {
        burn_tpu_graph::DType::BF16 => 0.03,
        burn_tpu_graph::DType::F16 => 4e-3,
        burn_tpu_graph::DType::F32 => 1e-5,
        _ => 1e-12,
    }
}

/// Returns whether results agree within the tolerance of their element type; integers must be equal.
pub fn agree(dtype: burn_tpu_graph::DType, found: &[u8], expected: &[u8]) -> bool {
    if !dtype.is_float() || found.len() != expected.len() {
        return found == expected;
    }
    let near = |(f, e): (f64, f64)| {
        f == e || (f.is_nan() && e.is_nan()) || (f - e).abs() <= tolerance(dtype) * f.abs().max(e.abs()).max(0.5)
    };
    floats(dtype, found).into_iter().zip(floats(dtype, expected)).all(near)
}

/// Returns a zero for every slot of a program.
pub fn zeros(program: &Program) -> Vec<u64> {
    vec![0; program.slots().map(|(_, index, _)| index as usize + 1).max().unwrap_or(0)]
}

/// Returns elements that reach the edges of every op: small numbers of both signs, zeros, extremes; with `wild`, also NaN
/// and infinities.
fn edges(ty: &TensorType, first: usize, wild: bool) -> Vec<u8> {
    let floats = [0.5, -2.0, 1.0, -0.75, 0.0, 3.0, -1.0, 2.5, -0.0, -3.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let floats = if wild { &floats[..] } else { &floats[..10] };
    let high = u64::MAX >> (65 - 8 * ty.dtype.size_bytes());
    let ints = [1, 2, 0, u64::MAX, 3, high, 5, high + 1, u64::MAX - 6, 4, 0, 100];
    let bits = |i: usize| match ty.dtype {
        DType::Bool => (i / 2 % 2) as u64,
        dtype if dtype.is_float() => Number::Float(floats[i % floats.len()]).bits(dtype),
        _ => ints[i % ints.len()],
    };
    (0..ty.elements()).flat_map(|i| bits(first + 5 * i).to_le_bytes()[..ty.dtype.size_bytes()].to_vec()).collect()
}

/// Returns the disagreements between the interpreter and an engine on the cases of one family, which `program` computes.
pub fn differences(
    family: &str,
    members: &[Case],
    program: &Program,
    run: impl Fn(&[Vec<u8>], &[u64]) -> Vec<Vec<u8>>,
) -> String {
    let names: Vec<&String> =
        members.iter().flat_map(|case| case.program.outputs().iter().map(|_| &case.name)).collect();
    // The product of infinity with a zero of padding or of a twiddle factor is unspecified.
    let wild = !["conv", "fft"].contains(&family);
    let mut report = String::new();
    for first in 0..4 {
        let mut parameters = vec![Vec::new(); program.parameters().map(|(i, _)| i as usize + 1).max().unwrap_or(0)];
        program.parameters().for_each(|(i, ty)| parameters[i as usize] = edges(ty, first + i as usize, wild));
        let mut slots = zeros(program);
        program.slots().for_each(|(_, i, dtype)| slots[i as usize] = Number::Int(i64::from(i) - 1).bits(dtype));
        let found = run(&parameters, &slots);
        let expected = burn_tpu_runtime::testing::interpret_program(program, &parameters, &slots).unwrap();
        for (((name, ty), found), expected) in names.iter().zip(program.output_types()).zip(&found).zip(&expected) {
            if !agree(ty.dtype, found, expected) {
                report += &format!("{name}: {ty}: engine {found:?}, interpreter {expected:?}\n");
            }
        }
    }
    report
}
