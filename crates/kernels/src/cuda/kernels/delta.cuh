// What both forms of the gated delta rule are told (delta_net.cu has the formulas).
#pragma once
#include "view.cuh"

struct DeltaRule {
    Floats q, k, v, alpha, beta, a, dt_bias, state, out;
    u32 grouped;     // key head h / (Hv / Hk) instead of h mod Hk
    float eps;
};
AS_HOST(DeltaRule, DELTA_RULE);
