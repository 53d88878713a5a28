// A llama of any size that is made while it is read: nothing of it is on a disk, and in memory is only what repeats.
//
// Its feed-forward has `copies` of every inner row, and a part of that many of every weight that reads them: with one copy or
// with many it computes the same numbers, but for how sums are rounded. All weights are f32 and look random.

const HIDDEN = 512;
const INNER = 128;
const HEADS = 4;
const HEAD = 32;
const VOCABULARY = 3 + 256;

const [U32, F32, TEXT, ARRAY, I32] = [4, 6, 8, 9, 5];
const ALIGNMENT = 32;

/**
 * The files of a llama, in order: each its `size`, its `header` and its bytes `from` a place `to` another. `gap` bytes of zeros
 * come first, a tensor that no graph reads.
 */
export function llama({ layers, copies, parts = 1, gap = 0 }) {
  const zeros = { name: "gap.weight", dims: [1 << 18, gap / 2 ** 20], pattern: Buffer.alloc(1 << 20), runs: 1, copies: gap / 2 ** 20 };
  const tensors = [tensor("token_embd.weight", [HIDDEN, VOCABULARY]), ones("output_norm.weight")];
  if (gap) tensors.unshift(zeros);
  const each = Math.ceil(layers / parts);
  const files = [];
  for (let part = 0; part < parts; part++) {
    for (let layer = part * each; layer < Math.min(layers, (part + 1) * each); layer++) tensors.push(...layerTensors(layer, copies));
    const split = [["split.no", U32, part], ["split.count", U32, parts]];
    const keys = [...(part === 0 ? modelKeys(layers, copies) : []), ...(parts > 1 ? split : [])];
    files.push(file(keys, tensors.splice(0)));
  }
  return files;
}

function layerTensors(layer, copies) {
  const name = (end) => `blk.${layer}.${end}.weight`;
  const down = tensor(name("ffn_down"), [INNER, HIDDEN], 1 / copies);
  return [
    ones(name("attn_norm")),
    tensor(name("attn_q"), [HIDDEN, HEADS * HEAD]),
    tensor(name("attn_k"), [HIDDEN, HEAD]),
    tensor(name("attn_v"), [HIDDEN, HEAD]),
    tensor(name("attn_output"), [HEADS * HEAD, HIDDEN]),
    ones(name("ffn_norm")),
    repeated(tensor(name("ffn_gate"), [HIDDEN, INNER]), copies, 1),
    repeated(tensor(name("ffn_up"), [HIDDEN, INNER]), copies, 1),
    repeated(down, copies, HIDDEN),
  ];
}

/** Random weights: `dims` with the innermost first, `pattern` their bytes, which come in `runs`, each `copies` times. */
function tensor(name, dims, scale = 1) {
  const values = new Float32Array(dims.reduce((product, dim) => product * dim));
  const most = scale * Math.sqrt(3 / dims[0]);
  let state = [...name].reduce((hash, letter) => Math.imul(hash ^ letter.charCodeAt(0), 16777619), 2166136261) | 1;
  for (let index = 0; index < values.length; index++) {
    // Marsaglia's xorshift32.
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    values[index] = (state / 2 ** 31) * most;
  }
  return { name, dims, pattern: Buffer.from(values.buffer), runs: 1, copies: 1 };
}

function ones(name) {
  return { name, dims: [HIDDEN], pattern: Buffer.from(new Float32Array(HIDDEN).fill(1).buffer), runs: 1, copies: 1 };
}

/** With each of `runs` equal parts `copies` times: rows repeat as a whole, what is in a row inside of it. */
function repeated(tensor, copies, runs) {
  const [columns, rows] = tensor.dims;
  return { ...tensor, runs, copies, dims: runs === 1 ? [columns, rows * copies] : [columns * copies, rows] };
}

function modelKeys(layers, copies) {
  const special = ["<unk>", "<s>", "</s>"];
  const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
  const tokens = [...special, ...bytes];
  return [
    ["general.architecture", TEXT, "llama"],
    ["general.name", TEXT, "Made while it is read"],
    ["llama.block_count", U32, layers],
    ["llama.context_length", U32, 512],
    ["llama.embedding_length", U32, HIDDEN],
    ["llama.feed_forward_length", U32, INNER * copies],
    ["llama.attention.head_count", U32, HEADS],
    ["llama.attention.head_count_kv", U32, 1],
    ["llama.attention.key_length", U32, HEAD],
    ["llama.attention.value_length", U32, HEAD],
    ["llama.rope.dimension_count", U32, HEAD],
    ["llama.attention.layer_norm_rms_epsilon", F32, 1e-5],
    ["tokenizer.ggml.model", TEXT, "llama"],
    ["tokenizer.ggml.tokens", ARRAY, [TEXT, tokens]],
    ["tokenizer.ggml.scores", ARRAY, [F32, tokens.map(() => 0)]],
    // 2 is unknown, 3 control, 6 a byte.
    ["tokenizer.ggml.token_type", ARRAY, [I32, [2, 3, 3, ...bytes.map(() => 6)]]],
    ["tokenizer.ggml.bos_token_id", U32, 1],
    ["tokenizer.ggml.eos_token_id", U32, 2],
  ];
}

/** A GGUF file of these keys and tensors. */
export function file(keys, tensors) {
  const sized = tensors.map((tensor) => ({ ...tensor, bytes: tensor.pattern.length * tensor.copies }));
  const head = [Buffer.from("GGUF"), u32(3), u64(tensors.length), u64(keys.length)];
  for (const [key, type, value] of keys) head.push(text(key), u32(type), encoded(type, value));
  let end = 0;
  for (const { name, dims, bytes } of sized) {
    head.push(text(name), u32(dims.length), ...dims.map(u64), u32(0), u64(end));
    end = padded(end + bytes);
  }
  const start = padded(head.reduce((sum, bytes) => sum + bytes.length, 0));
  const header = Buffer.alloc(start);
  Buffer.concat(head).copy(header);
  const pieces = [{ pattern: header, runs: 1, copies: 1, at: 0, bytes: start }];
  let at = start;
  for (const tensor of sized) {
    pieces.push({ ...tensor, at });
    at = padded(at + tensor.bytes);
  }
  return { size: at, header, read: (from, to) => read(pieces, from, to) };
}

function read(pieces, from, to) {
  const into = Buffer.alloc(to - from);
  for (const { pattern, runs, copies, at, bytes } of pieces) {
    const [length, run] = [pattern.length / runs, bytes / runs];
    for (let place = Math.max(from, at); place < Math.min(to, at + bytes); ) {
      const index = Math.floor((place - at) / run);
      const end = Math.min(to, at + (index + 1) * run);
      const unit = pattern.subarray(index * length, (index + 1) * length);
      const phase = (place - at - index * run) % length;
      if (copies === 1) unit.copy(into, place - from, phase, phase + end - place);
      else into.fill(Buffer.concat([unit.subarray(phase), unit.subarray(0, phase)]), place - from, end - from);
      place = end;
    }
  }
  return into;
}

function encoded(type, value) {
  if (type === TEXT) return text(value);
  if (type === F32) return f32(value);
  if (type !== ARRAY) return u32(value);
  const [of, values] = value;
  return Buffer.concat([u32(of), u64(values.length), ...values.map((value) => encoded(of, value))]);
}

function u32(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function u64(value) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function f32(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return bytes;
}

function text(value) {
  const bytes = Buffer.from(value);
  return Buffer.concat([u64(bytes.length), bytes]);
}

function padded(bytes) {
  return Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
}
