// gate = silu(gate) * up, of a plan in rows that are no padding; where one product cannot make both. A workgroup for each row.

struct Params {
    gate: View,
    up: View,
    stok: View,
    meta_words: View,
    count: u32,
    routed: u32,  // only rows of the plan with a token
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> gate: array<f32>;
@group(0) @binding(2) var<storage, read_write> up: array<f32>;
@group(0) @binding(3) var<storage, read_write> stok: array<i32>;
@group(0) @binding(4) var<storage, read_write> meta_words: array<u32>;

@compute @workgroup_size(256)
fn swiglu(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group_number(group, groups);
    if row >= p.count {
        return;
    }
    if p.routed == 1u {
        if row >= meta_words[p.meta_words.first + META_ROWS] {
            return;
        }
        if stok[p.stok.first + row] < 0 {
            return;
        }
    }
    for (var c = thread; c < p.gate.cols; c += 256u) {
        let to = at(p.gate, row, 0u) + c;
        gate[to] = silu(gate[to]) * up[at(p.up, row, 0u) + c];
    }
}
