// The product on any adapter: f32 sums, tiles in shared memory. What is staged there, `Staged`, is f32 (staged_f32.wgsl) or,
// for products in f16, f16 (staged_f16.wgsl): twice the columns in the same memory, so half the barriers.
//
// THREADS as 8 x 16 share DEPTH columns of k at a time: a thread decodes its share of the weights and loads its share of the
// rows for the next step while it multiplies. It sums rows ty + 8i and columns tx + 16j, so that neighbours read neighbours;
// rows of shared memory are an odd number of fours long, which spreads them over the banks.
//
// Lines with {r} are repeated for each of a thread's rows, those with {x} for each four of x that it loads, those with {e} for
// each eight weights of a step (shader.rs): WGSL cannot ask for a loop to be unrolled, and sums must not leave the registers.

const THREADS = 128u;
const FOURS = DEPTH / 4u;
const PITCH = FOURS + 1u; // from row to row

var<workgroup> x_tile: array<Staged, TILE_ROWS * PITCH>;
var<workgroup> w_tile: array<Staged, SLOTS * PITCH>;

fn put_x(item: u32, four: Staged) {
    if item < TILE_ROWS * FOURS {
        x_tile[item / FOURS * PITCH + item % FOURS] = four;
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
fn store(found: vec3<u32>, n: u32, r: u32, staged_sums: vec4<f32>) {
    if r >= found.z {
        return;
    }
    let sums = staged_sums * factor_of(input_rows[r]);
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
    find_work(number, thread);
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
    var next_w_{e} = w_at(row, depth + 16u * {e}u, here);
    for (var k = 0u; k < p.k; k += DEPTH) {
        let to_{e} = slot * PITCH + depth / 4u + 4u * {e}u;
        w_tile[to_{e}] = Staged(next_w_{e}.a);
        w_tile[to_{e} + 1u] = Staged(next_w_{e}.b);
        put_x(thread + {x}u * THREADS, next_x_{x});
        workgroupBarrier();
        next_x_{x} = x_at(thread + {x}u * THREADS, k + DEPTH);
        next_w_{e} = w_at(row, k + DEPTH + depth + 16u * {e}u, here);
        for (var q = 0u; q < FOURS; q++) {
            let w0 = vec4<f32>(w_tile[tx * PITCH + q]);
            let w1 = vec4<f32>(w_tile[(tx + 16u) * PITCH + q]);
            let w2 = vec4<f32>(w_tile[(tx + 32u) * PITCH + q]);
            let w3 = vec4<f32>(w_tile[(tx + 48u) * PITCH + q]);
            if 8u * {r}u < found.z { let a = vec4<f32>(x_tile[(ty + 8u * {r}u) * PITCH + q]); sum_{r} += vec4(dot(a, w0), dot(a, w1), dot(a, w2), dot(a, w3)); }
        }
        workgroupBarrier();
    }
    store(found, n0 + tx, ty + 8u * {r}u, sum_{r});
}
