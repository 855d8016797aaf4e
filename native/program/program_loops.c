#include <math.h>

#include "program/program_private.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define LOOPS(name) name##_baseline
#define TARGET
#include "program/program_loops.h"
#include "program/program_step.h"
#undef LOOPS
#undef TARGET

#if defined(__x86_64__)
#define LOOPS(name) name##_avx2
#define TARGET __attribute__((target("avx2")))
#define USE_AVX2
#include "program/program_loops.h"
#include "program/program_step.h"

bool md_program_has_avx2(void) { return __builtin_cpu_supports("avx2"); }
#else
bool md_step_avx2(md_reg *regs, const md_step *step, int64_t n) { return md_step_baseline(regs, step, n); }
bool md_program_has_avx2(void) { return false; }
#endif
