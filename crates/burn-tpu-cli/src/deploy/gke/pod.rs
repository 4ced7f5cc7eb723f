//! The pod of one host: the program in its image, on a node of the slice, with its chips, variables and checkpoints.
//!
//! Owns: the parts of `pod.yaml` that depend on the options. May not know: how many pods there are and what happens when one
//! ends.

use super::{Args, Run};
use crate::deploy::error::Result;
use crate::deploy::table;
use crate::deploy::yaml::{list, text};

/// Returns the template of the pods, which are alike.
pub fn template(args: &Args, run: &Run) -> Result<String> {
    Ok(format!(
        include_str!("pod.yaml"),
        annotations = annotations(args),
        command = list(4, &args.program.command),
        variables = variables(run),
        image = text(&args.image),
        ports = ports(run),
        chips = run.slice.chips_per_host(),
        mounts = mounts(args),
        spot = if args.spot { "    cloud.google.com/gke-spot: \"true\"\n" } else { "" },
        accelerator = run.slice.facts()?.gke_accelerator,
        shape = run.slice.shape(),
        service_account = service_account(args),
        grace = args.program.grace,
        volumes = volumes(args),
    ))
}

/// Returns the annotation that has GKE add the container which mounts the bucket.
fn annotations(args: &Args) -> &'static str {
    if args.checkpoint_bucket.is_none() {
        return "";
    }
    "metadata:\n  annotations:\n    gke-gcsfuse/volumes: \"true\"\n"
}

fn variables(run: &Run) -> String {
    if run.variables.is_empty() {
        return String::new();
    }
    let mut yaml = String::from("    env:\n");
    for (name, value) in &run.variables {
        yaml += &format!("    - name: {}\n      value: {}\n", text(name), text(value));
    }
    yaml
}

/// Returns the ports on which the pods reach each other. A port that is not listed is open too; this says what is used.
fn ports(run: &Run) -> String {
    if run.slice.hosts() == 1 {
        return String::new();
    }
    let (libtpu, store) = (table::LIBTPU_PORT, table::STORE_PORT);
    format!(
        "    ports:\n    - containerPort: {libtpu}\n      name: libtpu\n    - containerPort: {store}\n      name: store\n"
    )
}

fn service_account(args: &Args) -> String {
    let line = |name: &String| format!("  serviceAccountName: {}\n", text(name));
    args.service_account.as_ref().map(line).unwrap_or_default()
}

fn mounts(args: &Args) -> String {
    if volumes(args).is_empty() {
        return String::new();
    }
    format!("    volumeMounts:\n    - mountPath: {}\n      name: checkpoints\n", text(&args.checkpoint_path))
}

fn volumes(args: &Args) -> String {
    match (&args.checkpoint_bucket, &args.pvc) {
        (Some(bucket), _) => format!(
            "  volumes:\n  - csi:\n      driver: gcsfuse.csi.storage.gke.io\n      volumeAttributes:\n        \
             bucketName: {}\n        mountOptions: implicit-dirs\n    name: checkpoints\n",
            text(bucket)
        ),
        (None, Some(claim)) => {
            format!("  volumes:\n  - name: checkpoints\n    persistentVolumeClaim:\n      claimName: {}\n", text(claim))
        }
        (None, None) => String::new(),
    }
}
