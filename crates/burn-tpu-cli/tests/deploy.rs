//! `burn-tpu deploy` as a person runs it: what it prints, byte for byte, and what it refuses.
//!
//! `BURN_TPU_BLESS=1 cargo test -p burn-tpu-cli --test deploy` writes the golden files again.

use burn_tpu_runtime::Topology;
use burn_tpu_runtime::fit::{FitReport, Memory, Price, SliceFit, StepReport, Verdict};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const GKE: &[&str] = &["gke", "--slice", "v5e:4x4", "--image", "us-docker.pkg.dev/p/r/train:1", "--pvc", "checkpoints"];
const GKE_ONE_HOST: &[&str] = &[
    "gke",
    "--slice",
    "v5e:2x2",
    "--image",
    "train",
    "--checkpoint-bucket",
    "checkpoints",
    "--service-account",
    "trainer",
    "--spot",
    "--grace",
    "25",
];
const VM: &[&str] = &["vm", "--slice", "v5e:4x4", "--zone", "us-west4-a", "--from", "gs://bucket/train", "--spot"];

const DOCKER: &[&str] = &["docker", "--bin", "train"];
const PROGRAM: &[&str] = &["--", "./train", "--epochs", "10"];

fn deploy(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_burn-tpu")).arg("deploy").args(options).output().unwrap()
}

fn printed(options: &[&str]) -> String {
    let output = deploy(options);
    assert!(output.status.success(), "{options:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a refusal says.
fn refused(options: &[&str]) -> String {
    let output = deploy(options);
    assert!(!output.status.success() && output.stdout.is_empty(), "{options:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn is_golden(text: &str, name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/deploy").join(name);
    if std::env::var_os("BURN_TPU_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "{} differs", path.display());
}

#[test]
fn each_target_prints_what_it_printed_before() {
    is_golden(&printed(&[GKE, PROGRAM].concat()), "gke-v5e-4x4.yaml");
    is_golden(&printed(&[GKE_ONE_HOST, PROGRAM].concat()), "gke-v5e-2x2.yaml");
    is_golden(&printed(&[VM, PROGRAM].concat()), "vm-v5e-4x4.sh");
    is_golden(&printed(DOCKER), "Dockerfile");
}

#[test]
fn an_image_has_an_example_of_a_package() {
    let text = printed(&["docker", "--example", "gpt", "--package", "models"]);
    assert!(text.contains("cargo build --release --locked --package models --example gpt\n"), "{text}");
    assert!(text.contains("/source/target/release/examples/gpt /usr/local/bin/gpt\n"), "{text}");
    assert!(refused(&["docker"]).contains("--bin <NAME>"));
}

#[test]
fn the_text_goes_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.yaml");
    let out = ["--out", path.to_str().unwrap()];
    assert_eq!(printed(&[GKE, &out, PROGRAM].concat()), "");
    assert_eq!(fs::read_to_string(&path).unwrap(), printed(&[GKE, PROGRAM].concat()));
    let text = refused(&[DOCKER, &["--out", "/no/such/folder/Dockerfile"]].concat());
    assert!(text.contains("cannot write `/no/such/folder/Dockerfile`"), "{text}");
}

#[test]
fn refusals_say_what_is_wrong_and_what_would_be_right() {
    let gke = |slice: &'static str| [&["gke", "--image", "i", "--slice", slice], PROGRAM].concat();
    let with = |options: &[&'static str]| [GKE, options, PROGRAM].concat();
    let cases: [(Vec<&str>, &[&str]); 12] = [
        (gke("v9:2x2"), &["names no TPU generation", "v4, v5e, v5p, v6e, tpu7x"]),
        (gke("v5e"), &["GENERATION:AxB", "v5e:2x2"]),
        (gke("v5e:3x3"), &["has no slice `v5e:3x3`", "1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16"]),
        (gke("v4:1x1x1"), &["has no slice `v4:1x1x1`", "2x2x1, 2x2x2", "A <= B <= C and at most 4096 chips"]),
        (gke("v5p:8x4x4"), &["has no slice `v5p:8x4x4`", "A <= B <= C"]),
        (gke("2xv5e:4x4"), &["names 2 slices", "`v5e:4x4`"]),
        (vec!["gke", "--slice", "v5e:2x2", "--", "train"], &["--image <IMAGE>"]),
        (vec!["gke", "--image", "i", "--", "train"], &["--slice <SLICE>", "--fit <FILE>"]),
        (with(&["--env", "A B=1"]), &["--env A B=1", "not a name of letters, digits and `_`"]),
        (with(&["--name", "My_run"]), &["`My_run`", "lower-case letters, digits and dashes"]),
        (
            [&["vm", "--slice", "tpu7x:2x2x1", "--zone", "z", "--from", "gs://b/f"], PROGRAM].concat(),
            &["deploy gke --slice tpu7x:2x2x1"],
        ),
        (vec!["docker", "--bin", "a b"], &["letters, digits"]),
    ];
    for (options, parts) in cases {
        let text = refused(&options);
        for part in parts {
            assert!(text.contains(part), "{options:?}: no {part:?} in {text}");
        }
    }
}

/// Writes a report as `fit --json` does: name, verdict and dollars an hour of each slice.
fn report(folder: &Path, slices: &[(&str, Verdict, Option<f64>)]) -> PathBuf {
    let whole = FitReport {
        step: StepReport {
            programs: 1,
            settled: true,
            nodes: 1,
            flops: 1,
            matrix_flops: 1,
            transcendentals: 0,
            ops: BTreeMap::new(),
            rewrites: BTreeMap::new(),
            named: Vec::new(),
            hash: "00".into(),
        },
        slices: slices.iter().map(|(name, verdict, usd_per_hour)| on_slice(name, verdict, *usd_per_hour)).collect(),
        priced: "2026-11".into(),
    };
    let path = folder.join("report.json");
    fs::write(&path, serde_json::to_string_pretty(&whole).unwrap()).unwrap();
    path
}

fn on_slice(name: &str, verdict: &Verdict, usd_per_hour: Option<f64>) -> SliceFit {
    let topology: Topology = name.parse().unwrap();
    let price = |usd_per_hour| Price {
        usd_per_hour,
        usd_per_step: 0.1,
        usd_per_million_samples: None,
        usd_per_million_tokens: None,
    };
    SliceFit {
        topology: name.into(),
        generation: topology.generation(),
        chips: topology.chips(),
        devices: topology.chips(),
        verdict: verdict.clone(),
        memory: Memory { limit_bytes: 63 << 28, peak_bytes: 9 << 30, ..Memory::default() },
        buffers: Vec::new(),
        costliest: Vec::new(),
        chosen_options: Vec::new(),
        speed: None,
        mesh: Some("data=8".into()),
        collectives: Vec::new(),
        price: usd_per_hour.map(price),
        advice: Vec::new(),
        suggestions: Vec::new(),
        compile_seconds: 1.0,
    }
}

fn out_of_memory() -> Verdict {
    Verdict::OutOfMemory { message: "the compiler's".into() }
}

#[test]
fn a_report_chooses_the_cheapest_slice_that_fits() {
    let folder = tempfile::tempdir().unwrap();
    let path = report(
        folder.path(),
        &[
            ("v5e:2x2", out_of_memory(), None),
            ("v4:1x1x1", Verdict::Fits, Some(3.22)),
            ("tpu7x:2x2x2", Verdict::Fits, None),
            ("v6e:2x4", Verdict::Fits, Some(21.6)),
            ("v5e:2x4", Verdict::Fits, Some(9.6)),
            ("v5e:4x4", Verdict::Fits, Some(19.2)),
        ],
    );
    let fit = ["--fit", path.to_str().unwrap()];
    let text = printed(&[&["gke", "--image", "i"], &fit[..], PROGRAM].concat());
    for part in [
        "gke-tpu-topology: 2x4",
        "tpu-v5-lite-podslice",
        "# chosen: v5e:2x4: 8 chips on 1 host (9.60 $ an hour; 9.00 of 15.75 GiB of a device)",
        "# also fits: v6e:2x4",
        "# left out: v5e:2x2: out of memory",
        "# left out: v4:1x1x1: Google Cloud has no slice",
        "data=8",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let order: Vec<usize> = ["v5e:2x4", "v6e:2x4", "tpu7x:2x2x2", "v5e:4x4"]
        .iter()
        .filter_map(|name| text.rfind(&format!(" {name}: ")))
        .collect();
    assert!(order.len() == 4 && order.is_sorted(), "{text}");
}

#[test]
fn a_report_without_a_slice_that_fits_is_an_error_with_the_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let path = report(
        folder.path(),
        &[("v5e:2x2", out_of_memory(), None), ("v6e:2x2", Verdict::Failed { message: "no libtpu".into() }, None)],
    );
    let gke = |path: &str| refused(&[&["gke", "--image", "i", "--fit", path], PROGRAM].concat());
    let text = gke(path.to_str().unwrap());
    for part in ["v5e:2x2: out of memory", "v6e:2x2: the compiler failed", "run fit with other slices"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    fs::write(&path, "{\"rows\": []}").unwrap();
    let text = gke(path.to_str().unwrap());
    assert!(text.contains("is no report of `fit --json`: missing field `slices`"), "{text}");
    assert!(gke("/no/report.json").contains("`/no/report.json`"));
}

/// The scripts are read by the shells that will run them; with `gcloud` and others replaced, they say what they would do.
#[test]
fn the_vm_script_orders_the_slice_and_its_hosts_find_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let script = printed(&[VM, &["--env", "NOTE=it's here"], PROGRAM].concat());
    fs::write(folder.path().join("order.sh"), script).unwrap();
    let run = |file: &str, shell: &str| {
        let stubs = "gcloud() { echo gcloud \"$@\"; }; python3() { :; }; mkdir() { :; }; chmod() { :; }; cd() { :; }; \
                     systemd-run() { printf '<%s>' \"$@\"; }; \
                     curl() { case \"$*\" in *agent-worker-number) echo 2;; *) echo a:b:10.0.0.7,a:b:10.0.0.8;; esac; }";
        let text = format!("{stubs}; . ./{file}");
        let output = Command::new(shell).args(["-c", &text]).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let ordered = run("order.sh", "bash");
    let expected = "gcloud compute tpus queued-resources create burn-tpu --node-id=burn-tpu \
                    --runtime-version=v2-alpha-tpuv5-lite --zone=us-west4-a --accelerator-type=v5litepod-16 \
                    --metadata-from-file=startup-script=burn-tpu-startup.sh --spot\n";
    assert_eq!(ordered, expected);
    let started = run("burn-tpu-startup.sh", "bash");
    for part in [
        "gcloud storage cp --recursive gs://bucket/train/* /opt/burn-tpu/program",
        "<--setenv=BURN_TPU_PROCESS=2/4><--setenv=BURN_TPU_STORE=10.0.0.7:8479>",
        "<--setenv=TPU_LIBRARY_PATH=/opt/burn-tpu/plugin/libtpu/libtpu.so>",
        "<--setenv=NOTE=it's here>",
        "<--><./train><--epochs><10>",
    ] {
        assert!(started.contains(part), "no {part:?} in {started}");
    }
}

#[test]
fn a_vm_without_a_queue_and_one_with_a_shape() {
    let vm = |slice| [&["vm", "--slice", slice, "--zone", "z", "--from", "gs://b/f/"], PROGRAM].concat();
    let text = printed(&vm("v5p:2x2x2"));
    assert!(text.contains("gcloud compute tpus tpu-vm create burn-tpu"), "{text}");
    assert!(text.contains("--type=v5p --topology=2x2x2") && text.contains("--version=v2-alpha-tpuv5 "), "{text}");
    let text = printed(&vm("v6e:2x4"));
    assert!(
        text.contains("--accelerator-type=v6e-8") && !text.contains("BURN_TPU_STORE"),
        "one host is no group: {text}"
    );
    assert!(text.contains("'gs://b/f/*'"), "{text}");
}

/// Builds the image of a small program, where Docker runs and reaches its registry.
#[allow(clippy::print_stdout, reason = "why a test did nothing")]
#[test]
fn the_dockerfile_builds() {
    let ready = Command::new("docker").args(["pull", "--quiet", "debian:bookworm-slim"]).output();
    if !ready.is_ok_and(|output| output.status.success()) {
        return println!("skipped: no docker that runs and reaches its registry");
    }
    let folder = tempfile::tempdir().unwrap();
    let cargo = "[package]\nname = \"train\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("Cargo.toml"), cargo).unwrap();
    fs::write(folder.path().join("Cargo.lock"), "version = 4\n\n[[package]]\nname = \"train\"\nversion = \"0.1.0\"\n")
        .unwrap();
    fs::write(folder.path().join("src/main.rs"), "fn main() {}\n").unwrap();
    let file = folder.path().join("Dockerfile");
    printed(&[DOCKER, &["--out", file.to_str().unwrap()]].concat());
    let built = Command::new("docker").args(["build", "--quiet", "."]).current_dir(folder.path()).output().unwrap();
    assert!(built.status.success(), "{built:?}");
}
