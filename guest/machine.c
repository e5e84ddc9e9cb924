#include "machine.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "attach.h"
#include "contain.h"
#include "files.h"
#include "loop.h"
#include "memory.h"
#include "outfit.h"
#include "output.h"
#include "peer.h"
#include "power.h"
#include "stages.h"

enum { REST_TIMEOUT_MS = 2000 }; /* for the other processes, when one has ended by itself */

static struct process processes[PROCESSES_MAX];
static struct spec spec;
static enum state state = AWAITING;
static struct ending ending;
static int64_t kill_at = -1;
static bool have_ending;

enum state machine_state(void) { return state; }
const struct spec *machine_spec(void) { return &spec; }
const struct ending *machine_ending(void) { return &ending; }
bool machine_ready(void) { return state == RUNNING; }
struct process *machine_process(size_t index) { return index < spec.command_count ? &processes[index] : NULL; }

void machine_put_greeting(struct buffer *hello) {
    put_number(hello, state, 1);
    put_string(hello, spec.instance ? spec.instance : ""); /* none, too, when it was stopped before it had one */
}

static size_t running(void) {
    size_t count = 0;
    for (size_t i = 0; i < spec.command_count; i++) count += process_goes_on(&processes[i]);
    return count;
}

void machine_signal(int signal) {
    for (size_t i = 0; i < spec.command_count; i++)
        if (process_goes_on(&processes[i])) kill(processes[i].child.pid, signal);
}

/* --- to the end ----------------------------------------------------------------------------------------------- */

static void begin_stop(int signal, uint32_t timeout_ms) {
    state = STOPPING;
    machine_signal(signal);
    kill_at = now_ms() + timeout_ms;
}

/* The first end is the machine's. */
static void end_machine(const struct ending *end) {
    if (!have_ending) ending = *end;
    have_ending = true;
    if (state != STOPPING) begin_stop(SIGTERM, REST_TIMEOUT_MS);
}

static void look_for_ready(void) {
    for (size_t i = 0; i < spec.command_count; i++)
        if (processes[i].child.status_fd >= 0) return;
    if (state != STARTING) return;
    state = RUNNING;
    stage_reached(EXECUTED_ALL);
    if (power_is_ours()) stages_record(journal_stages);
    journal_ready();
    peers_tell_ready();
}

/* Runs may follow one another for years: when their records fill the journal, only the latest are kept. */
static void shorten_journal(void) {
    if (!journal_is_long()) return;
    journal_begin_anew();
    for (size_t i = 0; i < spec.command_count; i++) {
        const struct run *run = &processes[i].run;
        if (run->ended_once && run->state != ENDED) journal_run_ended(run);
        if (run->number) journal_run_began(run);
        if (run->state == ENDED) journal_run_ended(run);
    }
    journal_end_anew();
}

static void note_end(struct process *process, struct ending *end) {
    if (power_is_ours() || (spec.told && spec.contained)) end->oom = memory_is_to_blame(end->code, end->signal);
    process_end(process, end);
    if (spec.told) {
        journal_run_ended(&process->run);
        shorten_journal();
    } else
        journal_process_exit(end);
    if (!spec.told || state == STOPPING)
        end_machine(end);
    else
        process_kill_rest(process);
    process_tell_watchers(process);
    look_for_ready();
}

static void note_failure(struct process *process, const struct failure *why) {
    struct ending end = {.code = why->code, .process = process->run.process, .at_ns = unix_ns()};
    snprintf(end.reason, sizeof end.reason, "%s", why->text);
    note_end(process, &end);
}

/* What it needs could not be had, or its own files not be written: it ends, whatever its processes do. */
static void fail_machine(const struct failure *why) {
    struct ending end = {.code = why->code, .at_ns = unix_ns()};
    snprintf(end.reason, sizeof end.reason, "%s", why->text);
    journal_process_exit(&end);
    end_machine(&end);
}

/* --- runs ----------------------------------------------------------------------------------------------------- */

void machine_executed(struct process *process) {
    struct failure why;
    int status = process_executed(process, &why);
    if (status == 0) return;
    if (status < 0) {
        note_failure(process, &why); /* its exit status is ours, and said already */
        return;
    }
    process_tell_watchers(process);
    look_for_ready();
}

static void start_process(struct process *process) {
    struct failure why = {0};
    int result = process_begin(process, &spec, &why);
    if (spec.told || process->command->held) journal_run_began(&process->run);
    process_tell_watchers(process);
    if (result < 0) note_failure(process, &why);
}

const char *machine_run(struct process *process, uint32_t number) {
    if (number <= process->run.number) return NULL;
    if (state != RUNNING) return "the machine is not running";
    if (process_goes_on(process)) return "the run before goes on";
    if (number > process->run.number + 1) return "the run before was never begun";
    start_process(process);
    return NULL;
}

static int prepare(struct failure *why) {
    if (outfit_put_on(&spec, why) < 0) return -1;
    if (!spec.contained) return 0;
    contain(spec.hostname);
    stage_pause();
    int result = files_write(&spec.files, why);
    stage_go_on();
    return result;
}

void machine_accept(const struct spec *accepted) {
    struct failure why = {0};
    spec = *accepted;
    stage_reached(SPEC_TAKEN);
    for (size_t i = 0; i < spec.command_count; i++) process_init(&processes[i], &spec.commands[i], i, machine_executed);
    journal_accepted(spec.instance);
    if (spec.told) journal_expect_runs();
    output_set_limit(spec.output_limit);
    state = STARTING;
    if (prepare(&why) < 0) {
        fail_machine(&why);
        return;
    }
    for (size_t i = 0; i < spec.command_count && state == STARTING; i++)
        if (!spec.commands[i].held) start_process(&processes[i]);
    look_for_ready();
}

bool machine_reaped(pid_t pid, int status) {
    for (size_t i = 0; i < spec.command_count; i++) {
        struct process *process = &processes[i];
        if (!process_goes_on(process) || process->child.pid != pid) continue;
        if (process->child.status_fd >= 0) machine_executed(process);
        if (!process_goes_on(process)) return true;
        uint32_t signal = WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0;
        struct ending end = {.signal = signal, .process = (uint8_t)i, .at_ns = unix_ns()};
        end.code = signal ? 128 + signal : (uint32_t)WEXITSTATUS(status);
        note_end(process, &end);
        return true;
    }
    return false;
}

/* --- told ----------------------------------------------------------------------------------------------------- */

/* A machine that rests is stopped: it ended as the last of its processes did. */
static void take_last_ending(int signal) {
    ending = (struct ending){.code = 128 + (uint32_t)signal, .signal = (uint32_t)signal, .at_ns = unix_ns()};
    uint64_t latest = 0;
    for (size_t i = 0; i < spec.command_count; i++) {
        const struct run *run = &processes[i].run;
        if (!run->ended_once || run->ending.at_ns < latest) continue;
        ending = run->ending;
        latest = ending.at_ns;
    }
    have_ending = true;
}

void machine_stop(int signal, uint32_t timeout_ms) {
    if (state == AWAITING) {
        ending = (struct ending){.code = 128 + SIGTERM, .signal = SIGTERM, .at_ns = unix_ns()};
        strcpy(ending.reason, "stopped before it started");
        have_ending = true;
        state = STOPPING;
    } else if (state != EXITED) {
        if (!have_ending && running() == 0) take_last_ending(signal ? signal : spec.stop_signal);
        begin_stop(signal ? signal : spec.stop_signal, signal ? timeout_ms : spec.stop_timeout_ms);
    }
}

const char *machine_conclude(const struct process *process) {
    if (state == STOPPING || state == EXITED) return NULL;
    if (process->run.state != ENDED) return "the process has not ended";
    end_machine(&process->run.ending);
    return NULL;
}

/* --- the loop ------------------------------------------------------------------------------------------------- */

void machine_watch(void) {
    if (kill_at >= 0) loop_wake_at(kill_at);
    for (size_t i = 0; i < spec.command_count; i++) {
        process_tick(&processes[i]);
        process_watch(&processes[i]);
    }
}

bool machine_over(void) {
    if (state != STOPPING) return false;
    if (running() == 0 && attach_has_more()) return false;
    return running() == 0 || (kill_at >= 0 && now_ms() >= kill_at);
}

void machine_drain(void) {
    for (size_t i = 0; i < spec.command_count; i++) process_drain(&processes[i]);
}

void machine_finish(void) {
    state = EXITED;
    if (!have_ending) ending = (struct ending){.code = 128 + SIGKILL, .signal = SIGKILL, .at_ns = unix_ns()};
    journal_final_exit(&ending);
}
