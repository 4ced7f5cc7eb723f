//! Every slice that there is, rendered and parsed back into Kubernetes' own types.

use super::jobset::JobSet;
use super::*;
use burn_tpu_runtime::fit::Specs;
use burn_tpu_runtime::{Generation, Topology};
use clap::Parser;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde::de::DeserializeOwned;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn yaml(options: &[&str]) -> String {
    let words = ["gke", "--image", "i"].iter().chain(options).chain(&["--", "train", "--epochs", "10"]);
    render(&Cli::try_parse_from(words).unwrap().args).unwrap()
}

/// Parses YAML, and checks that nothing of it is lost: the types leave out what they do not know.
fn parsed<T: DeserializeOwned + serde::Serialize>(text: &str) -> T {
    let object: T = serde_saphyr::from_str(text).unwrap();
    let own: serde_json::Value = serde_saphyr::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(&object).unwrap(), own, "{text}");
    object
}

/// The spec of the pods, and how many of them there are.
fn pods(text: &str, hosts: usize) -> (PodSpec, JobSpec) {
    let job = match hosts {
        1 => parsed::<Job>(text).spec.unwrap(),
        _ => {
            let set: JobSet = parsed(text);
            let [jobs] = &set.spec.replicated_jobs[..] else { panic!("{text}") };
            assert_eq!((set.kind.as_str(), jobs.replicas), ("JobSet", 1));
            assert!(set.metadata.annotations.unwrap().contains_key("alpha.jobset.sigs.k8s.io/exclusive-topology"));
            jobs.template.spec.clone().unwrap()
        }
    };
    (job.template.spec.clone().unwrap(), job)
}

fn chips(container: &Container) -> usize {
    let limits = container.resources.as_ref().unwrap().limits.as_ref().unwrap();
    limits["google.com/tpu"].0.parse().unwrap()
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
            let (pod, job) = pods(&text, slice.hosts());
            let node = pod.node_selector.unwrap();
            assert_eq!(node["cloud.google.com/gke-tpu-accelerator"], label);
            assert_eq!(format!("{generation}:{}", node["cloud.google.com/gke-tpu-topology"]), slice.to_string());
            let hosts = job.completions.map_or(1, |hosts| hosts as usize);
            assert_eq!(job.parallelism, job.completions);
            assert_eq!(hosts * chips(&pod.containers[0]), slice.topology().chips(), "{slice}");
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
        let (pod, job) = pods(&text, hosts);
        assert_eq!((job.completions.unwrap_or(1), chips(&pod.containers[0])), (hosts as i32, each), "{name}");
        assert!(text.lines().next().unwrap().ends_with(machine), "{name}: {text}");
    }
}

#[test]
fn a_preempted_run_is_started_again_on_one_host_and_on_several() {
    let rules = |text: &str, hosts| pods(text, hosts).1.pod_failure_policy.unwrap().rules;
    let actions = |rules: &[PodFailurePolicyRule]| rules.iter().map(|rule| rule.action.clone()).collect::<Vec<_>>();
    let one = rules(&yaml(&["--slice", "v5e:2x2", "--restarts", "5"]), 1);
    assert_eq!(actions(&one), ["Ignore", "Ignore"]);
    assert_eq!(one[0].on_exit_codes.as_ref().unwrap().values, [75]);
    let text = yaml(&["--slice", "v5e:4x4", "--restarts", "5"]);
    assert_eq!(actions(&rules(&text, 4)), ["FailIndex", "FailJob", "FailJob"]);
    let policy = parsed::<JobSet>(&text).spec.failure_policy;
    assert_eq!((policy.max_restarts, policy.rules[0].on_job_failure_reasons[0].as_str()), (5, "FailedIndexes"));
}

#[test]
fn options_are_where_kubernetes_looks_for_them() {
    let options =
        ["--slice", "v6e:4x4", "--name", "gpt", "--checkpoint-bucket", "b", "--service-account", "a", "--spot"];
    let more = ["--grace", "90", "--env", "RUST_LOG=info", "--env", "BURN_TPU_STORE=redis://r:1#gpt"];
    let text = yaml(&[&options[..], &more].concat());
    let (pod, _) = pods(&text, 4);
    assert_eq!(pod.node_selector.as_ref().unwrap()["cloud.google.com/gke-spot"], "true");
    assert_eq!((pod.termination_grace_period_seconds, pod.service_account_name.as_deref()), (Some(90), Some("a")));
    let volume = &pod.volumes.as_ref().unwrap()[0];
    assert_eq!(volume.csi.as_ref().unwrap().volume_attributes.as_ref().unwrap()["bucketName"], "b");
    let container = &pod.containers[0];
    assert_eq!(container.volume_mounts.as_ref().unwrap()[0].mount_path, "/checkpoints");
    let env: Vec<_> =
        container.env.iter().flatten().map(|one| (one.name.as_str(), one.value.as_deref().unwrap())).collect();
    assert_eq!(env, [("RUST_LOG", "info"), ("BURN_TPU_STORE", "redis://r:1#gpt")], "--env replaces what deploy sets");
    assert!(text.contains("90 s only if its node pool is set to"), "{text}");
    let (pod, _) = pods(&yaml(&["--slice", "v5e:2x2", "--pvc", "claim"]), 1);
    assert_eq!(pod.volumes.unwrap()[0].persistent_volume_claim.as_ref().unwrap().claim_name, "claim");
}

/// YAML reads `yes`, `1e3` and `a: b` as something else unless they are quoted.
#[test]
fn words_that_yaml_would_misread_stay_strings() {
    for value in
        ["yes", "null", "1e3", "a: b", "# no comment", "- x", "it's \"here\"", "two\nlines", "", "ümlaut", "0x1F", "~"]
    {
        let text = yaml(&["--slice", "v5e:2x2", "--env", &format!("V={value}")]);
        let (pod, _) = pods(&text, 1);
        assert_eq!(pod.containers[0].env.as_ref().unwrap()[0].value.as_deref(), Some(value), "{text}");
    }
}
