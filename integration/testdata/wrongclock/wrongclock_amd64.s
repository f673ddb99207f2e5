#include "textflag.h"

#define SYS_clock_gettime 228

// func install()
TEXT ·install(SB), NOSPLIT, $0-0
	LEAQ	·clock(SB), AX
	MOVQ	AX, runtime·vdsoClockgettimeSym(SB)
	RET

// clock is called as C's clock_gettime is: DI says which clock, SI where the
// seconds and nanoseconds go.
TEXT ·clock(SB), NOSPLIT|NOFRAME, $0-0
	MOVL	$SYS_clock_gettime, AX
	SYSCALL
	TESTL	DI, DI // CLOCK_REALTIME is 0
	JNE	done
	MOVQ	·wrongBy(SB), CX
	ADDQ	CX, (SI)
done:
	RET
