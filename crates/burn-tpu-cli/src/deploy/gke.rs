//! `burn-tpu deploy gke`: YAML for Google Kubernetes Engine. One host is a `Job`, several are a `JobSet` of one indexed job.
//!
//! Owns: how many pods there are and what happens when one ends. `pod.rs` is one host, `jobset.rs` the types of JobSet.
//!
//! | a pod ends | one host | several hosts |
//! |---|---|---|
//! | with 0 | done | done once all are |
//! | with 75: told to end, and saved | a new pod | the others save and end too, then all start again |
//! | since its node is lost | a new pod | all are ended, and start again `--restarts` times |
//! | otherwise | a new pod, `--restarts` times | all are ended, and start again `--restarts` times |
//!
//! Several hosts are not an indexed Job alone: it replaces pods one by one, and a new process would join the store of a
//! run that is ending. The rules: <https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy> and
//! <https://jobset.sigs.k8s.io/docs/tasks/failure_policy/>.

use super::error::Result;
use super::fit::Choice;
use super::slice::Slice;
use super::{Output, ProgramArgs, SliceArgs, comment, name, table, variables};
use burn_tpu_runtime::distributed::PREEMPTED;
use jobset::{FailurePolicy, FailureRule, JobSet, JobSetSpec, Network, ReplicatedJob};
use k8s_openapi::api::batch::v1::{
    Job, JobSpec, JobTemplateSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

mod jobset;
mod pod;
#[cfg(test)]
mod tests;

/// The name of the job within a JobSet, and so a part of its pods' names.
const WORKERS: &str = "worker";

/// Options of `deploy gke`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    slice: SliceArgs,
    /// Image with the program and libtpu, such as one that `burn-tpu deploy docker` describes
    #[arg(long)]
    image: String,
    /// Name of the Job or JobSet
    #[arg(long, default_value = "burn-tpu", value_parser = name)]
    name: String,
    /// Cloud Storage bucket for checkpoints, mounted by Cloud Storage FUSE. It needs a hierarchical namespace
    #[arg(long, value_name = "BUCKET", conflicts_with = "pvc")]
    checkpoint_bucket: Option<String>,
    /// PersistentVolumeClaim for checkpoints, which all hosts can mount at once
    #[arg(long, value_name = "CLAIM")]
    pvc: Option<String>,
    /// Where the checkpoints are mounted
    #[arg(long, value_name = "FOLDER", default_value = "/checkpoints")]
    checkpoint_path: String,
    /// Kubernetes service account, which a bucket needs: its permissions are those of the pods
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Run on Spot nodes
    #[arg(long)]
    spot: bool,
    /// How often a run that failed is started again. One that was told to end and has saved always is
    #[arg(long, value_name = "TIMES", default_value_t = 3, value_parser = clap::value_parser!(i32).range(0..))]
    restarts: i32,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    pub output: Output,
}

/// What is run, of the command line and the report together.
struct Run {
    slice: Slice,
    reasons: Vec<String>,
    variables: Vec<(String, String)>,
}

/// Returns the YAML, with what a reader should know as comments above it.
pub fn render(args: &Args) -> Result<String> {
    let run = run(args)?;
    let object = match run.slice.hosts() {
        1 => serde_saphyr::to_string(&job(args, &run)?)?,
        _ => serde_saphyr::to_string(&job_set(args, &run)?)?,
    };
    Ok(comment(&notes(args, &run)?) + &object)
}

fn run(args: &Args) -> Result<Run> {
    let Choice { slice, mesh, reasons } = args.slice.choose()?;
    let mut all = Vec::new();
    if slice.hosts() > 1 {
        // GKE sets TPU_WORKER_ID and TPU_WORKER_HOSTNAMES, of which burn-tpu takes the number of each process.
        let store = format!("{0}-{WORKERS}-0-0.{0}:{1}", args.name, table::STORE_PORT);
        all.push(("BURN_TPU_STORE".to_owned(), store));
    }
    all.extend(mesh.map(|mesh| ("BURN_TPU_MESH".to_owned(), mesh)));
    Ok(Run { slice, reasons, variables: variables(all, &args.program.env)? })
}

/// Returns what a reader should know, a line each.
fn notes(args: &Args, run: &Run) -> Result<Vec<String>> {
    let machine = format!("{}{}t", run.slice.facts()?.machine, run.slice.chips_per_host());
    let mut lines = vec![format!("{}, machine type {machine}", run.slice.describe())];
    lines.extend(run.reasons.iter().cloned());
    if run.slice.hosts() > 1 {
        lines.push("The cluster needs JobSet: https://jobset.sigs.k8s.io/docs/installation/".into());
    }
    if args.checkpoint_bucket.is_some() {
        lines.push("The cluster needs the Cloud Storage FUSE driver, and the bucket a hierarchical namespace.".into());
    }
    let (grace, given) = (args.program.grace, table::SPOT_GRACE);
    if args.spot && grace > given {
        lines.push(format!("A Spot node gives its pods {given} s, and {grace} s only if its node pool is set to."));
    }
    Ok(lines)
}

fn job(args: &Args, run: &Run) -> Result<Job> {
    let rules = vec![on_preempted("Ignore"), on_lost_node("Ignore")];
    let spec = JobSpec {
        backoff_limit: Some(args.restarts),
        pod_failure_policy: Some(PodFailurePolicy { rules }),
        template: pod::template(args, run)?,
        ..JobSpec::default()
    };
    Ok(Job { metadata: metadata(args), spec: Some(spec), status: None })
}

fn job_set(args: &Args, run: &Run) -> Result<JobSet> {
    let again = FailureRule {
        name: "saved".into(),
        action: "RestartJobSetAndIgnoreMaxRestarts".into(),
        on_job_failure_reasons: vec!["FailedIndexes".into()],
    };
    let template = JobTemplateSpec { metadata: None, spec: Some(workers(args, run)?) };
    Ok(JobSet {
        api_version: "jobset.x-k8s.io/v1alpha2".into(),
        kind: "JobSet".into(),
        metadata: ObjectMeta { annotations: Some(one_node_pool()), ..metadata(args) },
        spec: JobSetSpec {
            network: Network { enable_dns_hostnames: true },
            failure_policy: FailurePolicy { max_restarts: args.restarts, rules: vec![again] },
            replicated_jobs: vec![ReplicatedJob { name: WORKERS.into(), replicas: 1, template }],
        },
    })
}

/// Returns the annotation that keeps the pods on the nodes of one slice, which are a node pool
/// (<https://jobset.sigs.k8s.io/docs/tasks/tpu_multislice/>).
fn one_node_pool() -> BTreeMap<String, String> {
    let topology = "alpha.jobset.sigs.k8s.io/exclusive-topology";
    BTreeMap::from([(topology.into(), "cloud.google.com/gke-nodepool".into())])
}

/// Returns the job with one pod for each host.
fn workers(args: &Args, run: &Run) -> Result<JobSpec> {
    let hosts = i32::try_from(run.slice.hosts()).ok();
    Ok(JobSpec {
        completion_mode: Some("Indexed".into()),
        completions: hosts,
        parallelism: hosts,
        backoff_limit_per_index: Some(0),
        pod_failure_policy: Some(PodFailurePolicy {
            rules: vec![on_preempted("FailIndex"), on_lost_node("FailJob"), on_failure("FailJob")],
        }),
        template: pod::template(args, run)?,
        ..JobSpec::default()
    })
}

fn metadata(args: &Args) -> ObjectMeta {
    ObjectMeta { name: Some(args.name.clone()), ..ObjectMeta::default() }
}

/// Returns the rule for a program that was told to end and has saved.
fn on_preempted(action: &str) -> PodFailurePolicyRule {
    on_exit_code(action, "In")
}

/// Returns the rule for every other failure of a program.
fn on_failure(action: &str) -> PodFailurePolicyRule {
    on_exit_code(action, "NotIn")
}

fn on_exit_code(action: &str, operator: &str) -> PodFailurePolicyRule {
    let codes = PodFailurePolicyOnExitCodesRequirement {
        container_name: Some(pod::PROGRAM.into()),
        operator: operator.into(),
        values: vec![i32::from(PREEMPTED)],
    };
    PodFailurePolicyRule { action: action.into(), on_exit_codes: Some(codes), on_pod_conditions: None }
}

/// Returns the rule for a pod that ends because its node does.
fn on_lost_node(action: &str) -> PodFailurePolicyRule {
    let lost = PodFailurePolicyOnPodConditionsPattern { type_: "DisruptionTarget".into(), status: "True".into() };
    PodFailurePolicyRule { action: action.into(), on_exit_codes: None, on_pod_conditions: Some(vec![lost]) }
}
