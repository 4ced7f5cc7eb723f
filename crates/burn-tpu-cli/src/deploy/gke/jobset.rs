//! The part of JobSet's API (`jobset.x-k8s.io/v1alpha2`) that `deploy` uses. JobSet is a custom resource, for which
//! `k8s-openapi` has no types; the jobs in it are ordinary ones, of its types.
//!
//! Owns: the fields and their names in YAML (<https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/>). May not know:
//! TPUs.

use k8s_openapi::api::batch::v1::JobTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// A set of jobs that start, fail and are started again together.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobSet {
    pub api_version: String,
    pub kind: String,
    pub metadata: ObjectMeta,
    pub spec: JobSetSpec,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobSetSpec {
    pub network: Network,
    pub failure_policy: FailurePolicy,
    pub replicated_jobs: Vec<ReplicatedJob>,
}

/// The headless service of the pods, which has the JobSet's name.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    #[serde(rename = "enableDNSHostnames")]
    pub enable_dns_hostnames: bool,
}

/// What happens when a job fails: the first rule that names its reason, or else a restart that counts.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailurePolicy {
    pub max_restarts: i32,
    pub rules: Vec<FailureRule>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailureRule {
    pub name: String,
    pub action: String,
    pub on_job_failure_reasons: Vec<String>,
}

/// Jobs of one template.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicatedJob {
    pub name: String,
    pub replicas: i32,
    pub template: JobTemplateSpec,
}
