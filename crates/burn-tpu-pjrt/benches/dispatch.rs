//! Measures the host's cost of one execute call: `cargo bench -p burn-tpu-pjrt`. The arrays are small, so that the time
//! is that of the call itself. Prints medians of 2000 calls, in microseconds; freeing the outputs is timed separately.

#![allow(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::time::Instant;

use burn_tpu_pjrt::{
    Buffer, Client, ClientOptions, CompileOptions, ElementType, ExecuteOptions, Plugin, PluginKind, Program, TensorSpec,
};

const CALLS: usize = 2000;

fn main() {
    let plugin = match Plugin::find(PluginKind::Cpu, None) {
        Ok(plugin) => plugin,
        Err(error) => return println!("skipped: {error}"),
    };
    let client = Client::new(plugin, &ClientOptions::cpu(1).unwrap()).unwrap();
    println!("{:>9} {:>8} {:>8} {:>12} {:>9}", "arguments", "outputs", "donated", "execute us", "free us");
    for (arguments, outputs) in [(1, 1), (10, 1), (100, 1), (400, 1), (10, 10), (100, 100), (400, 400)] {
        for donated in [false, true] {
            if !donated || arguments == outputs {
                let (execute, free) = measure(&client, arguments, outputs, donated);
                println!("{arguments:>9} {outputs:>8} {donated:>8} {execute:>12.1} {free:>9.1}");
            }
        }
    }
}

fn measure(client: &Client, arguments: usize, outputs: usize, donated: bool) -> (f64, f64) {
    let spec = TensorSpec::new(ElementType::F32, [8]).unwrap();
    let program = Program::stablehlo(text(arguments, outputs), vec![spec.clone(); arguments]).unwrap();
    let executable = client.compile(&program, &CompileOptions::default()).unwrap();
    let device = client.device(0).unwrap();
    let upload = || Buffer::from_host(&device, spec.clone(), &[0; 32]).unwrap();
    let mut inputs: Vec<Buffer> = (0..arguments).map(|_| upload()).collect();
    let kept: Vec<i64> = if donated { Vec::new() } else { (0..arguments as i64).collect() };
    let (mut execute, mut free) = (Vec::with_capacity(CALLS), Vec::with_capacity(CALLS));
    for _ in 0..CALLS {
        let borrowed: Vec<&Buffer> = inputs.iter().collect();
        let start = Instant::now();
        let options = ExecuteOptions { non_donatable: &kept, ..Default::default() };
        let results = executable.execute_single(&borrowed, &options).unwrap();
        execute.push(start.elapsed().as_secs_f64() * 1e6);
        results.iter().for_each(|buffer| buffer.wait().unwrap());
        // With donation the outputs are the next inputs, and the handles to drop are the empty ones.
        let unused = if donated { std::mem::replace(&mut inputs, results) } else { results };
        let start = Instant::now();
        drop(unused);
        free.push(start.elapsed().as_secs_f64() * 1e6);
    }
    (median(execute), median(free))
}

/// Returns a program whose outputs are each the sum of two neighbouring arguments; every argument may be donated.
fn text(arguments: usize, outputs: usize) -> String {
    let list = |count: usize, item: &dyn Fn(usize) -> String| (0..count).map(item).collect::<Vec<_>>().join(", ");
    let parameters = list(arguments, &|i| format!("%a{i}: tensor<8xf32> {{jax.buffer_donor = true}}"));
    let types = list(outputs, &|_| "tensor<8xf32>".to_owned());
    let sum =
        |i: usize| format!("%r{i} = stablehlo.add %a{}, %a{} : tensor<8xf32>\n", i % arguments, (i + 1) % arguments);
    let body: String = (0..outputs).map(sum).collect();
    let results = list(outputs, &|i| format!("%r{i}"));
    format!("func.func @main({parameters}) -> ({types}) {{\n{body}return {results} : {types}\n}}")
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
