// act_f16: rows of `half` are f16(x * 2^-s), s being 0 unless a number of the row is beyond the f16 range; then it is the least
// that brings the row inside. A workgroup for each row. Rounding is to nearest even, subnormals kept. `half` lies in fragments
// as the product by matrices loads them: fragment x fragment numbers side by side, row after row of fragments; fragment 1 is
// row after row. The rows of a tile of the plan begin at a multiple of `padded_rows`, which is what the product's tiles take for it.

struct Params {
    x: View,
    stok: View,
    meta_words: View,
    count: u32,
    columns: u32,     // of `half`, zeros beyond the last of x
    routed: u32,      // only rows of the plan
    gather: u32,      // a row of the plan is its token's, and padding is left alone
    tile_rows: u32,   // rows of the plan that lie together
    padded_rows: u32, // rows of `half` for them
    fragment: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> stok: array<i32>;
@group(0) @binding(3) var<storage, read_write> meta_words: array<u32>;
@group(0) @binding(4) var<storage, read_write> half: array<u32>;
@group(0) @binding(5) var<storage, read_write> exponents: array<i32>;

var<workgroup> rows: u32;

@compute @workgroup_size(256)
fn act_f16(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group_number(group, groups);
    if thread == 0u {
        rows = p.count;
        if p.routed == 1u {
            rows = meta_words[p.meta_words.first + META_ROWS];
        }
    }
    if row >= min(p.count, workgroupUniformLoad(&rows)) {
        return;
    }
    var source = row;
    if p.gather == 1u {
        source = bitcast<u32>(stok[p.stok.first + row]);
        if source == 0xffffffffu {
            return;
        }
    }
    let begin = at(p.x, source, 0u);
    var most = 0.0;
    for (var c = thread; c < p.x.cols; c += 256u) {
        most = max(most, abs(x[begin + c]));
    }
    most = group_max(thread, most);
    let s = range_exponent(most);
    let to = row / p.tile_rows * p.padded_rows + row % p.tile_rows;
    if thread == 0u {
        exponents[to] = s;
    }
    let scale = power_of_two(-s);
    let first = to / p.fragment * p.fragment * p.columns + to % p.fragment * p.fragment;
    for (var c = 2u * thread; c < p.columns; c += 512u) {
        var two = 0u;
        if c < p.x.cols {
            two = float_to_half(x[begin + c] * scale);
        }
        if c + 1u < p.x.cols {
            two |= float_to_half(x[begin + c + 1u] * scale) << 16u;
        }
        half[(first + c / p.fragment * p.fragment * p.fragment + c % p.fragment) / 2u] = two;
    }
}
