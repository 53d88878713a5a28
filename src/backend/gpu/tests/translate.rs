//! Shaders as drivers get them: SPIR-V for Vulkan, MSL for Metal, HLSL for DX12. And their interfaces, as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ModuleInfo};
use naga::{AddressSpace, Module, ScalarKind, ShaderStage, StorageAccess, TypeInner};

/// What a kernel may be written for.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    /// Of permutations.
    pub flags: &'static [&'static str],
    pub capabilities: Capabilities,
    /// Of the languages: the oldest that wgpu asks for with such devices.
    spirv: (u8, u8),
    metal: (u8, u8),
    /// `None` where naga writes no HLSL.
    shader_model: Option<hlsl::ShaderModel>,
}

/// Every WebGPU device; one that has all that kernels may use; and what wgpu calls experimental beside that.
pub const TARGETS: [Target; 3] = [
    Target {
        name: "floor",
        flags: &[],
        capabilities: Capabilities::empty(),
        spirv: (1, 0),
        metal: (2, 0),
        shader_model: Some(hlsl::ShaderModel::V5_1),
    },
    Target {
        name: "native",
        flags: &["HALVES", "SUBGROUPS"],
        capabilities: NATIVE,
        spirv: (1, 3),
        metal: (3, 0),
        shader_model: Some(hlsl::ShaderModel::V6_6),
    },
    Target {
        name: "cooperative",
        flags: &["HALVES", "SUBGROUPS", "COOPERATIVE"],
        capabilities: NATIVE.union(Capabilities::SHADER_FLOAT16).union(Capabilities::COOPERATIVE_MATRIX),
        spirv: (1, 3),
        metal: (3, 0),
        shader_model: None,
    },
];

const NATIVE: Capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32
    .union(Capabilities::SUBGROUP)
    .union(Capabilities::SUBGROUP_BARRIER);

/// Translates the entry point `name` to every language.
pub fn all(module: &Module, info: &ModuleInfo, name: &str, target: &Target) -> Result<(), String> {
    let entry = Some((ShaderStage::Compute, name.to_owned()));
    let options = spv::Options { lang_version: target.spirv, ..Default::default() };
    let pipeline = spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: name.to_owned() };
    let words = spv::write_vec(module, info, &options, Some(&pipeline));
    let words = words.map_err(|error| format!("SPIR-V: {error}"))?;
    let options = msl::Options { lang_version: target.metal, ..Default::default() };
    let pipeline = msl::PipelineOptions { entry_point: entry.clone(), ..Default::default() };
    let metal = msl::write_string(module, info, &options, &pipeline);
    let (metal, _) = metal.map_err(|error| format!("MSL: {error}"))?;
    let mut written = words.len() > 100 && metal.contains("kernel void ");
    if let Some(shader_model) = target.shader_model {
        let options = hlsl::Options { shader_model, ..Default::default() };
        let pipeline = hlsl::PipelineOptions { entry_point: entry };
        let mut text = String::new();
        hlsl::Writer::new(&mut text, &options, &pipeline)
            .write(module, info, None)
            .map_err(|error| format!("HLSL: {error}"))?;
        written &= text.contains("numthreads");
    }
    if written { Ok(()) } else { Err("a translation without the entry point".into()) }
}

/// Entry points with their workgroups, override constants, bindings with their types.
pub fn interface(module: &Module) -> String {
    let mut text = String::new();
    for entry in &module.entry_points {
        let [x, y, z] = entry.workgroup_size;
        write!(text, "{} {x}×{y}×{z}", entry.name).expect("text");
    }
    for (_, constant) in module.overrides.iter() {
        write!(text, ", override {}", constant.name.as_deref().unwrap_or("?")).expect("text");
    }
    let bindings: BTreeMap<u32, String> = module
        .global_variables
        .iter()
        .filter_map(|(_, variable)| {
            let space = match variable.space {
                AddressSpace::Uniform => "uniform",
                AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => "read_write",
                _ => "read",
            };
            let ty = describe(module, &module.types[variable.ty].inner);
            Some((variable.binding.as_ref()?.binding, format!("{space} {ty}")))
        })
        .collect();
    for (binding, what) in bindings {
        write!(text, ", {binding} {what}").expect("text");
    }
    text
}

fn describe(module: &Module, ty: &TypeInner) -> String {
    let scalar = |scalar: &naga::Scalar| {
        let kind = match scalar.kind {
            ScalarKind::Sint => "i",
            ScalarKind::Uint => "u",
            ScalarKind::Float => "f",
            _ => "?",
        };
        format!("{kind}{}", scalar.width * 8)
    };
    match ty {
        TypeInner::Scalar(kind) => scalar(kind),
        TypeInner::Vector { size, scalar: kind } => format!("vec{}<{}>", *size as u8, scalar(kind)),
        TypeInner::Atomic(kind) => format!("atomic<{}>", scalar(kind)),
        TypeInner::Array { base, .. } => format!("[{}]", describe(module, &module.types[*base].inner)),
        TypeInner::Struct { members, .. } => {
            let names: Vec<_> = members.iter().map(|member| member.name.as_deref().unwrap_or("?")).collect();
            format!("{{{}}}", names.join(" "))
        }
        _ => "?".into(),
    }
}
