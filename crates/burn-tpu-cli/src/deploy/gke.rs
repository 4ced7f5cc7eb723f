//! `burn-tpu deploy gke`: YAML for Google Kubernetes Engine. One host is a `Job`, several are a `JobSet` of one indexed job.
//!
//! Owns: how many pods there are and what happens when one ends. `pod.rs` is one host. `job.yaml`, `jobset.yaml` and
//! `pod.yaml` are the text; JobSet's fields are on <https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/>.
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
use super::yaml::indented;
use super::{Output, ProgramArgs, SliceArgs, comment, name, table, variables};
use burn_tpu_runtime::distributed::PREEMPTED;

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
        1 => job(args, &run)?,
        hosts => job_set(args, &run, hosts)?,
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

fn job(args: &Args, run: &Run) -> Result<String> {
    Ok(format!(
        include_str!("gke/job.yaml"),
        name = args.name,
        restarts = args.restarts,
        preempted = PREEMPTED,
        pod = indented(4, &pod::template(args, run)?),
    ))
}

/// Returns a JobSet with one pod for each host. Its annotation keeps the pods on the nodes of one slice, which are a node
/// pool (<https://jobset.sigs.k8s.io/docs/tasks/tpu_multislice/>).
fn job_set(args: &Args, run: &Run, hosts: usize) -> Result<String> {
    Ok(format!(
        include_str!("gke/jobset.yaml"),
        name = args.name,
        restarts = args.restarts,
        workers = WORKERS,
        hosts = hosts,
        preempted = PREEMPTED,
        pod = indented(10, &pod::template(args, run)?),
    ))
}
