//! The adapters that tests run on, and an ear for what wgpu complains about.
#![allow(dead_code, reason = "each test program uses its own part of it")]

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use hadal::backend::gpu::{Adapter, Device, Reach, adapters};

/// Every adapter. Without one a line is printed, except in CI, which has a software device.
pub fn found() -> &'static [Adapter] {
    static FOUND: LazyLock<Vec<Adapter>> = LazyLock::new(|| {
        listen();
        let adapters = adapters();
        if adapters.is_empty() {
            assert!(std::env::var_os("HADAL_CI").is_none(), "CI has a software device");
            println!("skipped: no GPU adapter was found");
        }
        adapters
    });
    &FOUND
}

/// Every adapter, opened with no more than WebGPU's floor, once a process: pipelines are compiled once.
pub fn devices() -> &'static [Arc<Device>] {
    static DEVICES: LazyLock<Vec<Arc<Device>>> = LazyLock::new(|| {
        found().iter().map(|adapter| Arc::new(Device::open(adapter, Reach::Floor).unwrap())).collect()
    });
    &DEVICES
}

/// Warnings and errors of wgpu, naga and the drivers so far.
pub fn complaints() -> Vec<String> {
    COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

static COMPLAINTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Ear;

impl log::Log for Ear {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }

    fn log(&self, record: &log::Record) {
        if record.level() <= log::Level::Warn {
            let text = format!("{} {}: {}", record.level(), record.target(), record.args());
            COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    }

    fn flush(&self) {}
}

fn listen() {
    log::set_logger(&Ear).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
}
