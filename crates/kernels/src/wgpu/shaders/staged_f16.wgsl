// What gemm.wgsl stages in shared memory for a product in f16: the input as act.wgsl rounded it, weights rounded once.

alias Staged = vec4<f16>;
const DEPTH = 32u;

@group(0) @binding(1) var<storage, read_write> half: array<vec4<f16>>;  // [M, half_columns / 4]: zeros beyond the last
@group(0) @binding(10) var<storage, read_write> exponents: array<i32>;  // [M]: x is half * 2^exponent

// Four columns of the tile's row that an item belongs to, in the step that begins with column `first`.
fn x_at(item: u32, first: u32) -> Staged {
    if item >= TILE_ROWS * FOURS {
        return vec4<f16>();
    }
    let row = input_rows[item / FOURS];
    if row == 0xffffffffu || first >= p.k {
        return vec4<f16>();
    }
    return half[row * p.half_columns / 4u + first / 4u + item % FOURS];
}

// What the sums of an input row are to be multiplied by.
fn factor_of(row: u32) -> f32 {
    return power_of_two(exponents[row]);
}
