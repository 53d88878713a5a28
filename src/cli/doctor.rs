//! `hadal doctor`: what this machine can run models on, in a form to paste into a bug report.

use std::io::{Write, stdout};

use clap::Args;
use hadal::simd::Isa;

/// Show what can run models here, and test it
#[derive(Args, Debug)]
pub struct Doctor {}

/// Prints the CPU and each GPU with limits, self-test and bandwidth.
pub fn doctor() -> anyhow::Result<()> {
    let mut out = stdout();
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "hadal {version}, {} {}", std::env::consts::OS, std::env::consts::ARCH)?;
    let isas: Vec<_> = Isa::available().map(Isa::name).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    writeln!(out, "cpu: {} of {}; {threads} threads", Isa::detect()?.name(), isas.join(", "))?;
    let overrides: Vec<_> = std::env::vars_os()
        .filter_map(|(name, value)| {
            let name = name.to_str().filter(|name| name.starts_with("HADAL_"))?;
            Some(format!("{name}={}", value.to_string_lossy()))
        })
        .collect();
    if !overrides.is_empty() {
        writeln!(out, "environment: {}", overrides.join(" "))?;
    }
    gpus(&mut out)
}

#[cfg(not(feature = "gpu"))]
fn gpus(out: &mut impl Write) -> anyhow::Result<()> {
    Ok(writeln!(out, "gpu: this program was built without")?)
}

/// Parts of the names of features that kernels could use.
#[cfg(feature = "gpu")]
const USEFUL: &[&str] = &[
    "SHADER_F16",
    "SUBGROUP",
    "TIMESTAMP",
    "IMMEDIATES",
    "COOPERATIVE",
    "PIPELINE_CACHE",
    "MAPPABLE_PRIMARY",
];

#[cfg(feature = "gpu")]
fn gpus(out: &mut impl Write) -> anyhow::Result<()> {
    let adapters = hadal::backend::gpu::adapters();
    if adapters.is_empty() {
        writeln!(out, "gpu: none was found; on Linux a Vulkan driver has to be installed")?;
    }
    for adapter in &adapters {
        gpu(out, adapter)?;
    }
    Ok(())
}

/// With compiled kernels kept where a model's are.
#[cfg(feature = "gpu")]
fn kept(device: hadal::backend::gpu::Device) -> hadal::backend::gpu::Device {
    match super::folder::pipelines() {
        Some(folder) => device.with_pipelines_in(&folder),
        None => device,
    }
}

#[cfg(feature = "gpu")]
fn gpu(out: &mut impl Write, adapter: &hadal::backend::gpu::Adapter) -> anyhow::Result<()> {
    use std::sync::Arc;

    use hadal::backend::gpu::{Device, Reach, check, cooperative_tile, is_hardware};

    let info = adapter.get_info();
    let software = if is_hardware(adapter) { "" } else { "; software, used only if asked for" };
    writeln!(out, "gpu: {} ({:?}, {:?}{software})", info.name, info.backend, info.device_type)?;
    writeln!(out, "  driver: {} {}", info.driver, info.driver_info)?;
    let useful = |name: &str| USEFUL.iter().any(|part| name.contains(part));
    let names = adapter.features().iter_names().map(|(name, _)| name);
    let features: Vec<String> = names.filter(|name| useful(name)).map(str::to_lowercase).collect();
    writeln!(out, "  features: {}", features.join(" "))?;
    let reach = Reach::asked()?;
    let matrices = match (cooperative_tile(adapter), reach) {
        (None, _) => "none that kernels know".into(),
        (Some(side), Reach::Experimental) => format!("{side} x {side}, used for prompts"),
        (Some(side), _) => format!("{side} x {side}, used with HADAL_GPU_LIMITS=experimental"),
    };
    writeln!(out, "  cooperative matrices: {matrices}")?;
    let device = match Device::open(adapter, reach) {
        Ok(device) => Arc::new(kept(device)),
        Err(error) => return Ok(writeln!(out, "  cannot be opened: {error}")?),
    };
    let limits = device.limits();
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    writeln!(
        out,
        "  limits: buffer {}, binding {}, workgroup memory {} KiB, {} invocations, {} storage buffers, {} workgroups",
        mib(limits.max_buffer_size),
        mib(limits.max_storage_buffer_binding_size),
        limits.max_compute_workgroup_storage_size >> 10,
        limits.max_compute_invocations_per_workgroup,
        limits.max_storage_buffers_per_shader_stage,
        limits.max_compute_workgroups_per_dimension,
    )?;
    match device.copy_bandwidth() {
        Ok(bandwidth) => writeln!(out, "  copies: {:.1} GB/s read and written", bandwidth / 1e9)?,
        Err(error) => writeln!(out, "  copies: {error}")?,
    }
    match check::self_test(&device) {
        Ok(checks) => {
            for check in checks {
                let verdict = if check.passed() { "ok" } else { "WRONG" };
                writeln!(out, "  self-test of {}: {verdict}, off by {:.1e}", check.family, check.error)?;
            }
        }
        Err(error) => writeln!(out, "  self-test: {error}")?,
    }
    let stats = device.compile_stats();
    let kept = if device.keeps_pipelines() { "kept for the next time" } else { "not kept" };
    let time = stats.time.as_secs_f64() * 1e3;
    Ok(writeln!(out, "  kernels: {} compiled in {time:.0} ms, {kept}", stats.pipelines)?)
}
