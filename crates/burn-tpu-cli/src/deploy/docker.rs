//! `burn-tpu deploy docker`: a Dockerfile that builds the program, and leaves the program and libtpu in a small image.
//!
//! Owns: the text. May not know: the program's own files and system libraries, which a person adds.

use super::Output;
use super::error::Result;
use burn_tpu_pjrt::discovery::PluginKind;

/// The images of the stages. All are Debian 12, so the program finds the C library that it was built with.
const BUILD: &str = concat!("rust:", env!("CARGO_PKG_RUST_VERSION"), "-slim-bookworm");
/// Of the Python that libtpu's pinned wheel is for.
const FETCH: &str = "python:3.11-slim-bookworm";
const FINAL: &str = "debian:bookworm-slim";

/// Where the library is in the image.
const LIBRARY: &str = "/usr/local/lib/libtpu.so";

/// Options of `deploy docker`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    program: Program,
    /// Package that has it
    #[arg(long, value_name = "NAME", value_parser = target)]
    package: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

/// The program, a target of the Cargo workspace in this folder.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Program {
    /// Binary to build
    #[arg(long, value_name = "NAME", value_parser = target)]
    bin: Option<String>,
    /// Example to build
    #[arg(long, value_name = "NAME", value_parser = target)]
    example: Option<String>,
}

impl Program {
    /// Returns its name, Cargo's option for it, and the folder below `target/release` where Cargo puts it.
    fn parts(&self) -> (&str, &'static str, &'static str) {
        match (&self.bin, &self.example) {
            (None, Some(example)) => (example, "--example", "examples/"),
            (bin, _) => (bin.as_deref().unwrap_or_default(), "--bin", ""),
        }
    }
}

/// Parses the name of a package or of one of its targets.
fn target(text: &str) -> std::result::Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_target = !text.is_empty() && !text.starts_with('-') && text.chars().all(is_name);
    if is_target { Ok(text.into()) } else { Err("needs a name of letters, digits, `-` and `_`".into()) }
}

/// Returns the Dockerfile.
pub fn render(args: &Args) -> Result<String> {
    let plugin = PluginKind::Tpu.package();
    let (package, version, library) = (plugin.package, plugin.version, plugin.library);
    let (name, option, folder) = args.program.parts();
    let of = args.package.as_ref().map(|package| format!(" --package {package}")).unwrap_or_default();
    Ok(format!(
        "# syntax=docker/dockerfile:1\n\
         # docker build --platform linux/amd64 --tag IMAGE . (with `target` in .dockerignore)\n\n\
         FROM {BUILD} AS build\n\
         WORKDIR /source\n\
         COPY . .\n\
         RUN cargo build --release --locked{of} {option} {name}\n\n\
         FROM {FETCH} AS plugin\n\
         RUN pip install --no-cache-dir --no-deps --target /plugin {package}=={version}\n\n\
         FROM {FINAL}\n\
         COPY --from=plugin /plugin/{library} {LIBRARY}\n\
         COPY --from=build /source/target/release/{folder}{name} /usr/local/bin/{name}\n\
         ENV TPU_LIBRARY_PATH={LIBRARY}\n\
         ENTRYPOINT [\"/usr/local/bin/{name}\"]\n"
    ))
}
