//! The pod of one host: the program in its image, on a node of the slice, with its chips, variables and checkpoints.
//!
//! Owns: the pod's spec as `k8s-openapi` types. May not know: how many pods there are and what happens when one ends.

use super::{Args, Run};
use crate::deploy::error::Result;
use crate::deploy::table;
use k8s_openapi::api::core::v1::{
    CSIVolumeSource, Container, ContainerPort, EnvVar, PersistentVolumeClaimVolumeSource, PodSpec, PodTemplateSpec,
    ResourceRequirements, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// The name of the container. A bucket adds another one to the pod, whose exit code says nothing of the run.
pub const PROGRAM: &str = "program";

/// The name of the checkpoint volume in the pod.
const CHECKPOINTS: &str = "checkpoints";

/// Returns the template of the pods, which are alike.
pub fn template(args: &Args, run: &Run) -> Result<PodTemplateSpec> {
    let spec = PodSpec {
        containers: vec![container(args, run)],
        node_selector: Some(node(args, run)?),
        restart_policy: Some("Never".into()),
        service_account_name: args.service_account.clone(),
        termination_grace_period_seconds: Some(i64::from(args.program.grace)),
        volumes: volume(args).map(|volume| vec![volume]),
        ..PodSpec::default()
    };
    Ok(PodTemplateSpec { metadata: metadata(args), spec: Some(spec) })
}

/// Returns the annotation that has GKE add the container which mounts the bucket.
fn metadata(args: &Args) -> Option<ObjectMeta> {
    args.checkpoint_bucket.as_ref()?;
    let annotations = BTreeMap::from([("gke-gcsfuse/volumes".into(), "true".into())]);
    Some(ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() })
}

fn node(args: &Args, run: &Run) -> Result<BTreeMap<String, String>> {
    let label = |name: &str, value: &str| (format!("cloud.google.com/{name}"), value.to_owned());
    let mut labels = BTreeMap::from([
        label("gke-tpu-accelerator", run.slice.facts()?.gke_accelerator),
        label("gke-tpu-topology", run.slice.shape()),
    ]);
    labels.extend(args.spot.then(|| label("gke-spot", "true")));
    Ok(labels)
}

fn container(args: &Args, run: &Run) -> Container {
    let chips = BTreeMap::from([("google.com/tpu".into(), Quantity(run.slice.chips_per_host().to_string()))]);
    let mount =
        || VolumeMount { name: CHECKPOINTS.into(), mount_path: args.checkpoint_path.clone(), ..VolumeMount::default() };
    Container {
        name: PROGRAM.into(),
        image: Some(args.image.clone()),
        command: Some(args.program.command.clone()),
        env: Some(run.variables.iter().map(variable).collect()).filter(|env: &Vec<_>| !env.is_empty()),
        ports: (run.slice.hosts() > 1).then(ports),
        resources: Some(ResourceRequirements { limits: Some(chips), ..ResourceRequirements::default() }),
        volume_mounts: volume(args).map(|_| vec![mount()]),
        ..Container::default()
    }
}

fn variable((name, value): &(String, String)) -> EnvVar {
    EnvVar { name: name.clone(), value: Some(value.clone()), value_from: None }
}

/// Returns the ports on which the pods reach each other. A port that is not listed is open too; this says what is used.
fn ports() -> Vec<ContainerPort> {
    let port =
        |port, name: &str| ContainerPort { container_port: port, name: Some(name.into()), ..ContainerPort::default() };
    vec![port(table::LIBTPU_PORT, "libtpu"), port(table::STORE_PORT, "store")]
}

fn volume(args: &Args) -> Option<Volume> {
    let bucket = args.checkpoint_bucket.as_ref().map(|bucket| CSIVolumeSource {
        driver: "gcsfuse.csi.storage.gke.io".into(),
        volume_attributes: Some(BTreeMap::from([
            ("bucketName".into(), bucket.clone()),
            ("mountOptions".into(), "implicit-dirs".into()),
        ])),
        ..CSIVolumeSource::default()
    });
    let claim =
        args.pvc.as_ref().map(|claim| PersistentVolumeClaimVolumeSource { claim_name: claim.clone(), read_only: None });
    let has_one = bucket.is_some() || claim.is_some();
    has_one.then(|| Volume {
        name: CHECKPOINTS.into(),
        csi: bucket,
        persistent_volume_claim: claim,
        ..Volume::default()
    })
}
