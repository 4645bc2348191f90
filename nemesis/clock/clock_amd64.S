# The clock of one process. These functions stand in for those of the vDSO.
# They are mapped as one private page (read, execute), the control page that
# the harness writes right behind it (read only). See page.go for its layout.
#
# Each calls the kernel's own vDSO function and converts what it says, so a
# clock that is not touched costs a few ns more than the true one. A reader
# starts again when the sequence was odd or has changed meanwhile: so no two
# readings straddle a change, and the monotonic clock cannot be seen to go back.
#
# x86-64 SysV ABI. Build with: go generate ./nemesis/clock

.intel_syntax noprefix
.text

.set ROW_BASE,   0     # true time from which the row holds, ns
.set ROW_VALUE,  8     # the row's clock at that time, ns
.set ROW_RATE,   16    # since then, 32.32 fixed point
.set ROW_PERIOD, 24    # of the strobe, ns; 0 for none
.set ROW_SWING,  32    # added in every second period, ns
.set ROW_ACTIVE, 40    # 0: the true clock

# Filled in for each process, by patch.go.
trueClockGettime: .quad 0    # offset 0
trueGettimeofday: .quad 0    # offset 8

# Row of the control page for each clock id, 0 for those left alone.
.org 32
rowOf:
    .byte 1    # REALTIME
    .byte 3    # MONOTONIC
    .byte 0    # PROCESS_CPUTIME_ID
    .byte 0    # THREAD_CPUTIME_ID
    .byte 4    # MONOTONIC_RAW
    .byte 1    # REALTIME_COARSE
    .byte 3    # MONOTONIC_COARSE
    .byte 5    # BOOTTIME
    .byte 1    # REALTIME_ALARM
    .byte 5    # BOOTTIME_ALARM
    .byte 0
    .byte 2    # TAI

# Clock id to convert from. A coarse clock lags by up to a tick, in which the
# row may have changed several times; so one that is changed is no longer coarse.
fineOf:
    .byte 0, 1, 2, 3, 4, 0, 1, 7, 8, 9, 10, 11

# int clock_gettime(clockid_t edi, struct timespec *rsi)
.org 64
    push rbx
    push rbp
    push r12
    push r13
    push r14                     # rsp is now a multiple of 16
    mov ebx, edi
    mov rbp, rsi
    cmp ebx, 11
    ja 8f
    lea rax, [rip + rowOf]
    movzx r12d, byte ptr [rax + rbx]
    test r12d, r12d
    jz 8f
    shl r12d, 6
    lea rax, [rip + control]
    add r12, rax
1:  mov r13d, [rip + control]
    test r13d, 1
    jnz 7f
    mov edi, ebx
    mov r14, [r12 + ROW_ACTIVE]
    test r14, r14
    jz 2f
    lea rax, [rip + fineOf]
    movzx edi, byte ptr [rax + rbx]
2:  mov rsi, rbp
    call [rip + trueClockGettime]
    test eax, eax
    jnz 9f
    test r14, r14
    jnz 3f
    cmp r13d, [rip + control]
    jne 1b
    jmp 9f
3:  imul rax, [rbp], 1000000000
    add rax, [rbp + 8]
    call convert
    cmp r13d, [rip + control]
    jne 1b
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    mov [rbp], rax
    mov [rbp + 8], rdx
    xor eax, eax
9:  pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
7:  pause
    jmp 1b
8:  mov edi, ebx
    mov rsi, rbp
    call [rip + trueClockGettime]
    jmp 9b

# int gettimeofday(struct timeval *rdi, struct timezone *rsi)
.org 320
    test rdi, rdi
    jz 8f
    push rbx
    push rbp
    push r12
    push r13
    push r14
    mov rbp, rdi
    mov rbx, rsi
    lea r12, [rip + control + 64]
1:  mov r13d, [rip + control]
    test r13d, 1
    jnz 7f
    mov rdi, rbp
    mov rsi, rbx
    call [rip + trueGettimeofday]
    test eax, eax
    jnz 9f
    cmp qword ptr [r12 + ROW_ACTIVE], 0
    jnz 2f
    cmp r13d, [rip + control]
    jne 1b
    jmp 9f
2:  imul rax, [rbp], 1000000
    add rax, [rbp + 8]
    imul rax, rax, 1000
    call convert
    cmp r13d, [rip + control]
    jne 1b
    xor edx, edx
    mov ecx, 1000
    div rcx
    xor edx, edx
    mov ecx, 1000000
    div rcx
    mov [rbp], rax
    mov [rbp + 8], rdx
    xor eax, eax
9:  pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
7:  pause
    jmp 1b
8:  jmp [rip + trueGettimeofday]

# time_t time(time_t *rdi)
.org 576
    push rbx
    push r12
    push r13
    push r14
    sub rsp, 24                  # a timespec; rsp is now a multiple of 16
    mov rbx, rdi
    lea r12, [rip + control + 64]
1:  mov r13d, [rip + control]
    test r13d, 1
    jnz 7f
    mov edi, 5                   # REALTIME_COARSE, as the kernel does
    xor eax, eax
    mov r14, [r12 + ROW_ACTIVE]
    test r14, r14
    cmovnz edi, eax              # REALTIME
    mov rsi, rsp
    call [rip + trueClockGettime]
    test r14, r14
    jnz 2f
    mov rax, [rsp]
    cmp r13d, [rip + control]
    jne 1b
    jmp 3f
2:  imul rax, [rsp], 1000000000
    add rax, [rsp + 8]
    call convert
    cmp r13d, [rip + control]
    jne 1b
    xor edx, edx
    mov ecx, 1000000000
    div rcx
3:  test rbx, rbx
    jz 9f
    mov [rbx], rax
9:  add rsp, 24
    pop r14
    pop r13
    pop r12
    pop rbx
    ret
7:  pause
    jmp 1b

# rax: true ns -> ns of the row at r12. Changes rcx, rdx, r8, r9.
.org 768
convert:
    sub rax, [r12 + ROW_BASE]
    mov rcx, rax
    imul qword ptr [r12 + ROW_RATE]
    shrd rax, rdx, 32
    add rax, [r12 + ROW_VALUE]
    mov r8, [r12 + ROW_PERIOD]
    test r8, r8
    jz 9f
    test rcx, rcx
    js 9f
    mov r9, rax
    mov rax, rcx
    xor edx, edx
    div r8
    test al, 1
    mov rax, r9
    jz 9f
    add rax, [r12 + ROW_SWING]
9:  ret

.set control, trueClockGettime + 4096
