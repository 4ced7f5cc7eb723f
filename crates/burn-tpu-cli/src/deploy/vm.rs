//! `burn-tpu deploy vm`: a shell script that orders TPU VMs with `gcloud`, and the start-up script of each host.
//!
//! Owns: both scripts. May not know: zones and quotas, of which `gcloud` tells. A start-up script runs as root at each boot.

use super::error::{Error, Result};
use super::fit::Choice;
use super::slice::Slice;
use super::table::{self, Order, Vm};
use super::{Output, ProgramArgs, SliceArgs, comment, name, variables};
use crate::launch::quoted;
use burn_tpu_pjrt::discovery::PluginKind;

/// Options of `deploy vm`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    slice: SliceArgs,
    /// Zone that has such TPUs and quota for them
    #[arg(long)]
    zone: String,
    /// Folder in Cloud Storage with the program, which each host copies and runs the command in: gs://BUCKET/FOLDER
    #[arg(long, value_name = "URL", value_parser = bucket_folder)]
    from: String,
    /// Name of the TPU VM
    #[arg(long, default_value = "burn-tpu", value_parser = name)]
    name: String,
    /// Wait for capacity as a queued resource
    #[arg(long)]
    queued: bool,
    /// Order a Spot VM
    #[arg(long, conflicts_with = "reserved")]
    spot: bool,
    /// Use a reservation
    #[arg(long)]
    reserved: bool,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    pub output: Output,
}

/// Parses the address of a folder in Cloud Storage.
fn bucket_folder(text: &str) -> std::result::Result<String, String> {
    let folder = text.strip_prefix("gs://").map(|rest| rest.trim_end_matches('/'));
    match folder {
        Some(folder) if !folder.is_empty() => Ok(format!("gs://{folder}")),
        _ => Err("needs the form gs://BUCKET/FOLDER".into()),
    }
}

/// Returns the script.
///
/// # Errors
/// [`Error::NoVm`] for a generation that is not ordered in this way.
pub fn render(args: &Args) -> Result<String> {
    let Choice { slice, mesh, reasons } = args.slice.choose()?;
    let vm = slice.facts()?.vm.ok_or_else(|| Error::NoVm { name: slice.to_string() })?;
    let mesh = mesh.map(|mesh| ("BURN_TPU_MESH".to_owned(), mesh));
    let given = variables(mesh.into_iter().collect(), &args.program.env)?;
    let startup = startup(args, &slice, &given);
    let head = comment(&[vec![slice.describe()], reasons].concat());
    let (name, create, after) = (&args.name, create(args, &slice, &vm), after(args));
    Ok(format!(
        "#!/bin/sh\n{head}set -eu\n\n\
         cat > {name}-startup.sh <<'END_OF_STARTUP'\n{startup}END_OF_STARTUP\n\n{create}\n\n{after}"
    ))
}

/// Returns the command that orders the hosts.
fn create(args: &Args, slice: &Slice, vm: &Vm) -> String {
    let (name, zone) = (&args.name, quoted(&args.zone));
    let mut words = match is_queued(args) {
        true => vec![
            format!("gcloud compute tpus queued-resources create {name}"),
            format!("--node-id={name}"),
            format!("--runtime-version={}", vm.runtime),
        ],
        false => vec![format!("gcloud compute tpus tpu-vm create {name}"), format!("--version={}", vm.runtime)],
    };
    words.push(format!("--zone={zone}"));
    words.push(match vm.order {
        Order::Chips(prefix) => format!("--accelerator-type={prefix}-{}", slice.topology().chips()),
        Order::Shape(kind) => format!("--type={kind} --topology={}", slice.shape()),
    });
    words.push(format!("--metadata-from-file=startup-script={name}-startup.sh"));
    words.extend(args.spot.then(|| "--spot".into()));
    words.extend(args.reserved.then(|| "--reserved".into()));
    words.join(" \\\n  ")
}

/// Returns whether the order is a queued resource: the documentation's way to Spot VMs and reservations.
fn is_queued(args: &Args) -> bool {
    args.queued || args.spot || args.reserved
}

/// Returns the commands for later, as comments.
fn after(args: &Args) -> String {
    let (name, zone) = (&args.name, quoted(&args.zone));
    let delete = match is_queued(args) {
        true => format!("gcloud compute tpus queued-resources delete {name} --zone={zone} --force"),
        false => format!("gcloud compute tpus tpu-vm delete {name} --zone={zone}"),
    };
    let state = match is_queued(args) {
        true => format!("#   gcloud compute tpus queued-resources describe {name} --zone={zone}\n"),
        false => String::new(),
    };
    format!(
        "# What it says, and the end of the bill:\n{state}\
         #   gcloud compute tpus tpu-vm ssh {name} --zone={zone} --worker=all --command='sudo journalctl --unit={name}'\n\
         #   {delete}\n"
    )
}

/// Returns the script that each host runs when it starts: it fetches libtpu and the program, and starts it as a service.
fn startup(args: &Args, slice: &Slice, given: &[(String, String)]) -> String {
    let (name, package) = (&args.name, PluginKind::Tpu.package());
    let folder = format!("/opt/{name}");
    let (place, group) = if slice.hosts() > 1 { (place_in_slice(), group(slice.hosts())) } else { Default::default() };
    let fixed = [
        format!("TPU_LIBRARY_PATH={folder}/plugin/{}", package.library),
        format!("BURN_TPU_CACHE_DIR=/var/cache/{name}"),
    ];
    let given = given.iter().map(|(name, value)| quoted(&format!("{name}={value}")));
    let settings: String =
        fixed.into_iter().chain(group).chain(given).map(|setting| format!("  --setenv={setting} \\\n")).collect();
    let command: Vec<String> = args.program.command.iter().map(|word| quoted(word)).collect();
    format!(
        "#!/bin/bash\nset -eu\n{place}\
         mkdir -p {folder}/plugin {folder}/program\n\
         python3 -m pip download --quiet --no-deps {tags} \\\n  --dest={folder} {package}=={version}\n\
         python3 -m zipfile -e {folder}/{package}-{version}-*.whl {folder}/plugin\n\
         gcloud storage cp --recursive {from} {folder}/program\n\
         chmod -R a+x {folder}/program\n\
         cd {folder}/program\n\
         systemd-run --unit={name} --working-directory={folder}/program --property=TimeoutStopSec={grace} \\\n\
         {settings}  -- {command}\n",
        tags = table::WHEEL_TAGS,
        package = package.package,
        version = package.version,
        from = quoted(&format!("{}/*", args.from)),
        grace = args.program.grace,
        command = command.join(" "),
    )
}

/// Returns the lines that ask the metadata server which host this is, and for the address of the first one.
fn place_in_slice() -> String {
    "metadata() {\n  \
       curl -sf -H 'Metadata-Flavor: Google' \\\n    \
         \"http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1\"\n\
     }\n\
     index=$(metadata agent-worker-number)\n\
     first=$(metadata worker-network-endpoints | cut -d, -f1 | cut -d: -f3)\n"
        .into()
}

/// Returns the variables that make the hosts a group.
fn group(hosts: usize) -> Vec<String> {
    let store = format!("BURN_TPU_STORE=$first:{}", table::STORE_PORT);
    vec![format!("BURN_TPU_PROCESS=$index/{hosts}"), store]
}
