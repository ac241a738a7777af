// out[t, s, :] = sigmoid(r(key[t, s] . query[t, s] / sqrt(D))) * value[t, :], r(g) = sign(g) sqrt(max(|g|, 1e-6)); a
// workgroup for each token and stream.

struct Params {
    key: View,
    query: View,
    value: View,
    out: View,
    count: u32,
    streams: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> key: array<f32>;
@group(0) @binding(2) var<storage, read_write> query: array<f32>;
@group(0) @binding(3) var<storage, read_write> value: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn ple_gate(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let number = group_number(group, groups);
    if number >= p.count {
        return;
    }
    let t = number / p.streams;
    let s = number % p.streams;
    var dot = 0.0;
    for (var c = thread; c < p.key.cols; c += 256u) {
        dot += key[at(p.key, t, s) + c] * query[at(p.query, t, s) + c];
    }
    let score = group_sum(thread, dot) / sqrt(f32(p.key.cols));
    let gate = sigmoid(sign(score) * sqrt(max(abs(score), 1e-6)));
    for (var c = thread; c < p.key.cols; c += 256u) {
        out[at(p.out, t, s) + c] = gate * value[at(p.value, t, 0u) + c];
    }
}
