// SPDX-License-Identifier: GPL-2.0-only
/*
 * A kfunc for foldback's BPF programs: folds payloads by AVX2, of which BPF has nothing. It
 * folds by words, as the programs do, if vector registers are out of reach.
 */
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <asm/cpufeature.h>
#include <asm/fpu/api.h>
#include <asm/fpu/xcr.h>
#include "folds.h"

int fb_fold(struct fb_payload *into, const struct fb_payload *from, __u32 op, __u32 type,
	    __u32 length);
int fb_copy(struct fb_payload *into, const struct fb_payload *from, __u32 length);
int fb_place(struct fb_payload *into, const struct fb_payload *from, __u32 offset, __u32 length);
#include "fold.h"

/* Linux 6.3 and 6.9. */
#ifndef __bpf_kfunc
#define __bpf_kfunc __used noinline
#endif
#ifndef BTF_KFUNCS_START
#define BTF_KFUNCS_START BTF_SET8_START
#define BTF_KFUNCS_END BTF_SET8_END
#endif

static bool avx2 = true;
module_param(avx2, bool, 0444);
MODULE_PARM_DESC(avx2, "fold by AVX2; N if the CPU has none");

/* Folds since the module was loaded, each CPU's own. */
static DEFINE_PER_CPU(unsigned long, by_avx2);
static DEFINE_PER_CPU(unsigned long, by_words);

static int put_sum(char *buffer, const unsigned long __percpu *counts)
{
	unsigned long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu) sum += *per_cpu_ptr(counts, cpu);
	return sysfs_emit(buffer, "%lu\n", sum);
}

/* From Linux 6.15 on no kernel_param can point to a number of each CPU: it has an address space. */
static int get_by_avx2(char *buffer, const struct kernel_param *param)
{
	return put_sum(buffer, &by_avx2);
}

static int get_by_words(char *buffer, const struct kernel_param *param)
{
	return put_sum(buffer, &by_words);
}

static const struct kernel_param_ops by_avx2_ops = {.get = get_by_avx2};
static const struct kernel_param_ops by_words_ops = {.get = get_by_words};

module_param_cb(by_avx2, &by_avx2_ops, NULL, 0444);
MODULE_PARM_DESC(by_avx2, "folds by AVX2 so far");
module_param_cb(by_words, &by_words_ops, NULL, 0444);
MODULE_PARM_DESC(by_words, "folds without it so far");

int foldback_simd_fold(void *into, u32 into__sz, const void *from, u32 from__sz, u32 op_and_type);

/*
 * Folds `from` into `into`, of as many bytes: whole blocks, FB_JUMBO_BYTES at most. (BPF has five
 * arguments, and the verifier wants a length with each pointer.) `op_and_type` is
 * op << 8 | type, of enum fb_op and enum fb_type or enum fb_simd_type. Returns 0 or an error.
 */
__bpf_kfunc int foldback_simd_fold(void *into, u32 into__sz, const void *from, u32 from__sz,
				   u32 op_and_type)
{
	u32 op = op_and_type >> 8, type = op_and_type & 255;
	int refused;

	if (into__sz != from__sz || into__sz % FB_FOLD_BLOCK || into__sz > FB_JUMBO_BYTES)
		return -EINVAL;
	if (avx2 && irq_fpu_usable()) {
		kernel_fpu_begin();
		refused = fb_simd_fold(into, from, into__sz, op, type);
		kernel_fpu_end();
		this_cpu_inc(by_avx2);
	} else {
		/* Numbers of floating point need these registers. */
		if (type >= FB_TYPE_COUNT)
			return -EOPNOTSUPP;
		refused = fb_fold(into, from, op, type, into__sz);
		this_cpu_inc(by_words);
	}
	return refused ? -EINVAL : 0;
}

BTF_KFUNCS_START(foldback_simd_ids)
BTF_ID_FLAGS(func, foldback_simd_fold)
BTF_KFUNCS_END(foldback_simd_ids)

static const struct btf_kfunc_id_set foldback_simd_set = {
    .owner = THIS_MODULE,
    .set = &foldback_simd_ids,
};

static int __init foldback_simd_init(void)
{
	int error;

	avx2 = avx2 && boot_cpu_has(X86_FEATURE_AVX2) &&
	       cpu_has_xfeatures(XFEATURE_MASK_SSE | XFEATURE_MASK_YMM, NULL);
	error = register_btf_kfunc_id_set(BPF_PROG_TYPE_SCHED_CLS, &foldback_simd_set);
	return error ?: register_btf_kfunc_id_set(BPF_PROG_TYPE_XDP, &foldback_simd_set);
}

/* The kernel forgets the kfunc with the module's BTF. Programs that use it hold the module. */
static void __exit foldback_simd_exit(void)
{
}

module_init(foldback_simd_init);
module_exit(foldback_simd_exit);
MODULE_DESCRIPTION("Folds of foldback's BPF programs by AVX2");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.2.0");
