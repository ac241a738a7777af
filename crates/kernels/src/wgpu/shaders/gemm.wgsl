// The product on any adapter: f32 operands and sums, tiles in shared memory.
//
// THREADS as 8 x 16 share 16 columns of k at a time: a thread decodes eight weights and loads its share of the rows for
// the next step while it multiplies. It sums rows ty + 8i and columns tx + 16j, so that neighbours read neighbours; rows of
// shared memory are five vec4 long, which spreads them over the banks.
//
// Lines with {r} are repeated for each of a thread's rows, those with {x} for each vec4 of x that it loads (shader.rs): WGSL
// cannot ask for a loop to be unrolled, and sums must not leave the registers.

@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read> w_words: array<u32>;
@group(0) @binding(3) var<storage, read> up_words: array<u32>;

const THREADS = 128u;
const DEPTH = 16u;
const PITCH = 5u;               // vec4 from row to row

var<private> of_up: bool; // which of the two weights this thread reads

fn weight_word(i: u32) -> u32 {
    if SWIGLU && of_up {
        return up_words[i];
    }
    return w_words[i];
}

var<workgroup> x_tile: array<vec4<f32>, TILE_ROWS * PITCH>;
var<workgroup> w_tile: array<vec4<f32>, SLOTS * PITCH>;

fn x_at(item: u32, first: u32) -> vec4<f32> {
    if item >= TILE_ROWS * 4u {
        return vec4(0.0);
    }
    let row = input_rows[item / 4u];
    let k = first + item % 4u * 4u;
    if row == 0xffffffffu || k >= p.k {
        return vec4(0.0);
    }
    let begin = at(p.x, row, 0u) + k;
    if k + 4u <= p.k {
        return vec4(x[begin], x[begin + 1u], x[begin + 2u], x[begin + 3u]);
    }
    var four = vec4(0.0);
    for (var j = 0u; k + j < p.k; j++) {
        four[j] = x[begin + j];
    }
    return four;
}

fn put_x(item: u32, four: vec4<f32>) {
    if item < TILE_ROWS * 4u {
        x_tile[item / 4u * PITCH + item % 4u] = four;
    }
}

// Weights k .. k + 8 of a row, zeros beyond the last column.
fn w_at(row: u32, k: u32, here: bool) -> Eight {
    if !here || k >= p.k {
        return Eight(vec4(0.0), vec4(0.0));
    }
    var eight = weights_at(row, k);
    if k + 8u > p.k {
        let left = p.k - k;
        eight.a = select(vec4(0.0), eight.a, vec4(left) > vec4(0u, 1u, 2u, 3u));
        eight.b = select(vec4(0.0), eight.b, vec4(left) > vec4(4u, 5u, 6u, 7u));
    }
    return eight;
}

// Stores a thread's products of tile row r: columns n + 16j, or with SWIGLU two of each weight.
fn store(found: vec3<u32>, n: u32, r: u32, sums: vec4<f32>) {
    if r >= found.z {
        return;
    }
    if SWIGLU {
        let to = at(p.out, found.y + r, 0u) + n;
        if n < p.n {
            out[to] = silu(sums.x) * sums.z;
        }
        if n + 16u < p.n {
            out[to + 16u] = silu(sums.y) * sums.w;
        }
        return;
    }
    for (var j = 0u; j < 4u; j++) {
        if is_here(p.w, found.x, n + 16u * j) {
            finish(found.y + r, n + 16u * j, sums[j]);
        }
    }
}

@compute @workgroup_size(THREADS)
fn gemm(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let number = group_number(group, groups);
    if thread == 0u {
        work = look_up(number);
    }
    let found = workgroupUniformLoad(&work);
    if found.z == 0u {
        return;
    }
    find_rows(found, thread, THREADS);
    let n0 = (p.first_block + number % p.column_blocks) * BLOCK_COLUMNS;
    let slot = thread / 2u;
    of_up = SWIGLU && slot >= BLOCK_COLUMNS;
    let n = n0 + slot % BLOCK_COLUMNS;
    var here = is_here(p.w, found.x, n);
    var row = byte_of(p.w, found.x, n);
    if of_up {
        here = is_here(p.up, found.x, n);
        row = byte_of(p.up, found.x, n);
    }
    let depth = thread % 2u * 8u;
    let tx = thread % 16u;
    let ty = thread / 16u;

    var sum_{r} = vec4(0.0);
    var next_x_{x} = x_at(thread + {x}u * THREADS, 0u);
    var next_w = w_at(row, depth, here);
    for (var k = 0u; k < p.k; k += DEPTH) {
        w_tile[slot * PITCH + depth / 4u] = next_w.a;
        w_tile[slot * PITCH + depth / 4u + 1u] = next_w.b;
        put_x(thread + {x}u * THREADS, next_x_{x});
        workgroupBarrier();
        next_x_{x} = x_at(thread + {x}u * THREADS, k + DEPTH);
        next_w = w_at(row, k + DEPTH + depth, here);
        for (var q = 0u; q < DEPTH / 4u; q++) {
            let w0 = w_tile[tx * PITCH + q];
            let w1 = w_tile[(tx + 16u) * PITCH + q];
            let w2 = w_tile[(tx + 32u) * PITCH + q];
            let w3 = w_tile[(tx + 48u) * PITCH + q];
            if 8u * {r}u < found.z { let a = x_tile[(ty + 8u * {r}u) * PITCH + q]; sum_{r} += vec4(dot(a, w0), dot(a, w1), dot(a, w2), dot(a, w3)); }
        }
        workgroupBarrier();
    }
    store(found, n0 + tx, ty + 8u * {r}u, sum_{r});
}
