// act_f16: row r of `half` is f16(x[r] * 2^-s), s being 0 unless a number of the row is beyond the f16 range; then it is the
// least that brings the row inside. A workgroup for each row. Rounding is to nearest even, subnormals kept.
// swiglu: gate = silu(gate) * up, in rows that are no padding; where one product cannot make both.

struct Params {
    x: View,          // or gate
    up: View,
    stok: View,
    meta_words: View,
    count: u32,
    words: u32,       // of a row of `half`: two columns each, zeros beyond the last
    routed: u32,      // only rows of the plan, and for swiglu only those with a token
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> up: array<f32>;
@group(0) @binding(3) var<storage, read_write> stok: array<i32>;
@group(0) @binding(4) var<storage, read_write> meta_words: array<u32>;
@group(0) @binding(5) var<storage, read_write> half: array<u32>;
@group(0) @binding(6) var<storage, read_write> exponents: array<i32>;

var<workgroup> rows: u32;

@compute @workgroup_size(256)
fn act_f16(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group_number(group, groups);
    if thread == 0u {
        rows = p.count;
        if p.routed == 1u {
            rows = meta_words[p.meta_words.first + 1u];
        }
    }
    if row >= min(p.count, workgroupUniformLoad(&rows)) {
        return;
    }
    let begin = at(p.x, row, 0u);
    var most = 0.0;
    for (var c = thread; c < p.x.cols; c += 256u) {
        most = max(most, abs(x[begin + c]));
    }
    most = group_max(thread, most);
    let s = range_exponent(most);
    if thread == 0u {
        exponents[row] = s;
    }
    let scale = power_of_two(-s);
    for (var word = thread; word < p.words; word += 256u) {
        var two = 0u;
        if 2u * word < p.x.cols {
            two = float_to_half(x[begin + 2u * word] * scale);
        }
        if 2u * word + 1u < p.x.cols {
            two |= float_to_half(x[begin + 2u * word + 1u] * scale) << 16u;
        }
        half[row * p.words + word] = two;
    }
}

@compute @workgroup_size(256)
fn swiglu(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group_number(group, groups);
    if row >= p.count {
        return;
    }
    if p.routed == 1u {
        if row >= meta_words[p.meta_words.first + 1u] {
            return;
        }
        if stok[p.stok.first + row] < 0 {
            return;
        }
    }
    for (var c = thread; c < p.x.cols; c += 256u) {
        let gate = at(p.x, row, 0u) + c;
        x[gate] = silu(x[gate]) * up[at(p.up, row, 0u) + c];
    }
}
