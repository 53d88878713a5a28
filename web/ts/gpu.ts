// What a browser's GPU can do beyond what wgpu asks for or can know: subgroups, and whether halves become exact numbers.

/** As much of WebGPU as is used here: TypeScript's own declarations have none of it yet. */
interface Gpu {
  requestAdapter(): Promise<Adapter | null>;
  wgslLanguageFeatures?: ReadonlySet<string>;
}

interface Adapter {
  features: ReadonlySet<string>;
  requestDevice(descriptor?: Descriptor): Promise<Device>;
}

interface Descriptor {
  requiredFeatures?: Iterable<string>;
}

type Device = any;

/** Flags of the module's options. */
export interface Extras {
  subgroups: boolean;
  halves: boolean;
}

const NONE: Extras = { subgroups: false, halves: false };

/** Looks at the GPU that wgpu will take, and has its device opened with subgroups if it has them. */
export async function prepareGpu(): Promise<Extras> {
  const { gpu } = navigator as unknown as { gpu?: Gpu };
  const adapter = await gpu?.requestAdapter().catch(() => null);
  if (!gpu || !adapter) return NONE;
  // The kernels' rows are split by subgroup: a language feature of its own.
  const subgroups = adapter.features.has("subgroups") && (gpu.wgslLanguageFeatures?.has("subgroup_id") ?? false);
  if (subgroups) alwaysAsk("subgroups");
  // Those that fail here fail in wgpu as well, which says why.
  const halves = await adapter.requestDevice().then(convertsHalves).catch(() => false);
  return { subgroups, halves };
}

/** Adds a feature to what every device is opened with: wgpu calls the browser's function as anybody does. */
function alwaysAsk(feature: string): void {
  const { GPUAdapter } = globalThis as unknown as { GPUAdapter: { prototype: Adapter } };
  const request = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = function (descriptor = {}) {
    const requiredFeatures = new Set([...(descriptor.requiredFeatures ?? []), feature]);
    return request.call(this, { ...descriptor, requiredFeatures });
  };
}

const HALVES = 1 << 16;
const CONVERT = `
@group(0) @binding(0) var<storage, read_write> numbers: array<vec2<u32>>;
@compute @workgroup_size(64)
fn convert(@builtin(global_invocation_id) id: vec3<u32>) {
  numbers[id.x] = bitcast<vec2<u32>>(unpack2x16float((id.x << 16u) | id.x));
}`;

/** Whether all halves become the numbers that they are: WebGPU lets a device take small ones for zero. */
async function convertsHalves(device: Device): Promise<boolean> {
  const [STORAGE, COPY_SRC, COPY_DST, MAP_READ] = [0x80, 4, 8, 1];
  const size = HALVES * 8;
  const buffer = device.createBuffer({ size, usage: STORAGE | COPY_SRC });
  const copy = device.createBuffer({ size, usage: COPY_DST | MAP_READ });
  const module = device.createShaderModule({ code: CONVERT });
  const pipeline = device.createComputePipeline({ layout: "auto", compute: { module, entryPoint: "convert" } });
  const entries = [{ binding: 0, resource: { buffer } }];
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
  pass.dispatchWorkgroups(HALVES / 64);
  pass.end();
  encoder.copyBufferToBuffer(buffer, 0, copy, 0, size);
  device.queue.submit([encoder.finish()]);
  await copy.mapAsync(MAP_READ);
  const found = new Float32Array(copy.getMappedRange());
  const exact = found.every((number, index) => Object.is(number, numberOf(index >> 1)));
  device.destroy();
  return exact;
}

/** The number that 16 bits stand for. */
function numberOf(bits: number): number {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const sign = bits >> 15 ? -1 : 1;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
}
