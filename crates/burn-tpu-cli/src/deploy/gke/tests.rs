//! Every slice that there is, rendered and parsed as YAML. The golden files hold the names of all fields.

use super::*;
use burn_tpu_runtime::fit::Specs;
use burn_tpu_runtime::{Generation, Topology};
use clap::Parser;
use serde_json::{Value, json};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn yaml(options: &[&str]) -> String {
    let words = ["gke", "--image", "i"].iter().chain(options).chain(&["--", "train", "--epochs", "10"]);
    render(&Cli::try_parse_from(words).unwrap().args).unwrap()
}

fn parsed(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The spec of the job of the pods.
fn job_spec(text: &str, hosts: usize) -> Value {
    let object = parsed(text);
    if hosts == 1 {
        assert_eq!((&object["apiVersion"], &object["kind"]), (&json!("batch/v1"), &json!("Job")));
        return object["spec"].clone();
    }
    let jobs = object["spec"]["replicatedJobs"].as_array().unwrap();
    assert_eq!((&object["kind"], jobs.len(), &jobs[0]["replicas"]), (&json!("JobSet"), 1, &json!(1)), "{text}");
    assert!(object["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"].is_string());
    jobs[0]["template"]["spec"].clone()
}

/// The spec of the pods of a job.
fn pod(job: &Value) -> &Value {
    &job["template"]["spec"]
}

fn chips(job: &Value) -> usize {
    pod(job)["containers"][0]["resources"]["limits"]["google.com/tpu"].as_str().unwrap().parse().unwrap()
}

/// The pods of a job, which is not indexed if it has one.
fn completions(job: &Value) -> usize {
    assert_eq!(job["completions"], job["parallelism"]);
    job["completions"].as_u64().unwrap_or(1) as usize
}

/// All slices of a generation: every shape that its name can have, if it is legal.
fn slices(generation: Generation) -> Vec<Slice> {
    let sides: Vec<u32> = [1, 2].into_iter().chain((4..=256).step_by(4)).collect();
    let third = if generation.is_cubic() { &sides[..] } else { &[0] };
    let mut found = Vec::new();
    for (x, y) in sides.iter().flat_map(|x| sides.iter().map(move |y| (x, y))) {
        for z in third.iter().filter(|&&z| x * y * z.max(1) <= 9216) {
            let form = if generation.is_cubic() { format!("{x}x{y}x{z}") } else { format!("{x}x{y}") };
            let topology: Option<Topology> = format!("{generation}:{form}").parse().ok();
            found.extend(topology.and_then(|topology| Slice::new(topology).ok()));
        }
    }
    found
}

#[test]
fn every_slice_of_every_generation_is_a_job_with_all_its_chips() {
    let specs = Specs::builtin().unwrap();
    let labels = ["tpu-v4-podslice", "tpu-v5-lite-podslice", "tpu-v5p-slice", "tpu-v6e-slice", "tpu7x"];
    let mut rendered = Vec::new();
    for (generation, label) in Generation::ALL.into_iter().zip(labels) {
        let all = slices(generation);
        for slice in &all {
            let text = yaml(&["--slice", &slice.to_string()]);
            let job = job_spec(&text, slice.hosts());
            let node = &pod(&job)["nodeSelector"];
            assert_eq!(node["cloud.google.com/gke-tpu-accelerator"], label);
            let shape = node["cloud.google.com/gke-tpu-topology"].as_str().unwrap();
            assert_eq!(format!("{generation}:{shape}"), slice.to_string());
            assert_eq!(completions(&job) * chips(&job), slice.topology().chips(), "{slice}");
        }
        // As `fit` counts: a chip of v4 and TPU7x is two devices, of which Kubernetes knows nothing.
        assert!((1..=2).contains(&specs.of(generation).devices_per_chip));
        rendered.push(all.len());
    }
    println!("slices rendered and parsed: {rendered:?}");
    assert_eq!((rendered[1], rendered[3]), (8, 8), "v5e and v6e have eight shapes each");
    assert!(rendered.iter().all(|&count| count >= 8));
}

/// From the tables of the documentation, page by page, and not from `table.rs`.
#[test]
fn hosts_are_those_of_the_documentation() {
    for (name, hosts, each, machine) in [
        ("v4:2x2x1", 1, 4, "ct4p-hightpu-4t"),
        ("v4:4x4x4", 16, 4, "ct4p-hightpu-4t"),
        ("v5e:1x1", 1, 1, "ct5lp-hightpu-1t"),
        ("v5e:2x2", 1, 4, "ct5lp-hightpu-4t"),
        ("v5e:2x4", 1, 8, "ct5lp-hightpu-8t"),
        ("v5e:4x4", 4, 4, "ct5lp-hightpu-4t"),
        ("v5e:16x16", 64, 4, "ct5lp-hightpu-4t"),
        ("v5p:2x2x1", 1, 4, "ct5p-hightpu-4t"),
        ("v5p:2x4x4", 8, 4, "ct5p-hightpu-4t"),
        ("v5p:8x8x16", 256, 4, "ct5p-hightpu-4t"),
        ("v5p:16x16x24", 1536, 4, "ct5p-hightpu-4t"),
        ("v6e:2x4", 1, 8, "ct6e-standard-8t"),
        ("v6e:16x16", 64, 4, "ct6e-standard-4t"),
        ("tpu7x:2x2x1", 1, 4, "tpu7x-standard-4t"),
        ("tpu7x:4x4x4", 16, 4, "tpu7x-standard-4t"),
    ] {
        let text = yaml(&["--slice", name]);
        let job = job_spec(&text, hosts);
        assert_eq!((completions(&job), chips(&job)), (hosts, each), "{name}");
        assert!(text.lines().next().unwrap().ends_with(machine), "{name}: {text}");
    }
}

#[test]
fn a_preempted_run_is_started_again_on_one_host_and_on_several() {
    let rules = |text: &str, hosts| job_spec(text, hosts)["podFailurePolicy"]["rules"].as_array().unwrap().clone();
    let actions = |rules: &[Value]| rules.iter().map(|rule| rule["action"].clone()).collect::<Vec<_>>();
    let one = yaml(&["--slice", "v5e:2x2", "--restarts", "5"]);
    assert_eq!(actions(&rules(&one, 1)), ["Ignore", "Ignore"]);
    assert_eq!(rules(&one, 1)[0]["onExitCodes"]["values"], json!([75]));
    assert_eq!(job_spec(&one, 1)["backoffLimit"], 5);
    let several = yaml(&["--slice", "v5e:4x4", "--restarts", "5"]);
    assert_eq!(actions(&rules(&several, 4)), ["FailIndex", "FailJob", "FailJob"]);
    let policy = &parsed(&several)["spec"]["failurePolicy"];
    assert_eq!(
        (&policy["maxRestarts"], &policy["rules"][0]["onJobFailureReasons"]),
        (&json!(5), &json!(["FailedIndexes"]))
    );
}

#[test]
fn options_are_where_kubernetes_looks_for_them() {
    let options =
        ["--slice", "v6e:4x4", "--name", "gpt", "--checkpoint-bucket", "b", "--service-account", "a", "--spot"];
    let more = ["--grace", "90", "--env", "RUST_LOG=info", "--env", "BURN_TPU_STORE=redis://r:1#gpt"];
    let text = yaml(&[&options[..], &more].concat());
    let job = job_spec(&text, 4);
    let spec = pod(&job);
    assert_eq!(spec["nodeSelector"]["cloud.google.com/gke-spot"], "true");
    assert_eq!((&spec["terminationGracePeriodSeconds"], &spec["serviceAccountName"]), (&json!(90), &json!("a")));
    assert_eq!(job["template"]["metadata"]["annotations"]["gke-gcsfuse/volumes"], "true");
    assert_eq!(spec["volumes"][0]["csi"]["volumeAttributes"]["bucketName"], "b");
    let container = &spec["containers"][0];
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/checkpoints");
    let env =
        json!([{ "name": "RUST_LOG", "value": "info" }, { "name": "BURN_TPU_STORE", "value": "redis://r:1#gpt" }]);
    assert_eq!(container["env"], env, "--env replaces what deploy sets");
    assert!(text.contains("90 s only if its node pool is set to"), "{text}");
    let job = job_spec(&yaml(&["--slice", "v5e:2x2", "--pvc", "claim"]), 1);
    assert_eq!(pod(&job)["volumes"][0]["persistentVolumeClaim"]["claimName"], "claim");
}

/// A person's text reaches Kubernetes as it is, wherever it goes: no text ends its line, or becomes a field of its own.
#[test]
fn text_that_looks_like_yaml_stays_text() {
    let nasty = [
        "yes",
        "1e3",
        "a: b",
        "# no comment",
        "it's \"here\"",
        "two\nlines\r\n",
        "x\n  hostNetwork: true",
        "",
        "{pod}",
    ];
    for nasty in nasty {
        let env = format!("V={nasty}");
        let options = ["--slice", "v5e:2x2", "--env", &env, "--image", nasty, "--service-account", nasty];
        let words = [&["gke"], &options[..], &["--checkpoint-path", nasty, "--pvc", nasty, "--", nasty]].concat();
        let text = render(&Cli::try_parse_from(words).unwrap().args).unwrap();
        let job = job_spec(&text, 1);
        let container = json!({
            "command": [nasty],
            "env": [{ "name": "V", "value": nasty }],
            "image": nasty,
            "name": "program",
            "resources": { "limits": { "google.com/tpu": "4" } },
            "volumeMounts": [{ "mountPath": nasty, "name": "checkpoints" }],
        });
        assert_eq!(pod(&job)["containers"], json!([container]), "{text}");
        assert_eq!(pod(&job)["serviceAccountName"], nasty);
        let volume = json!({ "name": "checkpoints", "persistentVolumeClaim": { "claimName": nasty } });
        assert_eq!(pod(&job)["volumes"], json!([volume]));
        let bucket = yaml(&["--slice", "v5e:2x2", "--checkpoint-bucket", nasty]);
        let attributes = json!({ "bucketName": nasty, "mountOptions": "implicit-dirs" });
        assert_eq!(pod(&job_spec(&bucket, 1))["volumes"][0]["csi"]["volumeAttributes"], attributes);
    }
}
