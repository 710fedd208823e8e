"""Runs that once failed; every one of them must pass for ever.

An entry has the options of the shrunk run as JSON (so that a change of the generator does not
change the run), or only a seed, which is drawn without a situation, and a sentence about what
went wrong.
"""

from __future__ import annotations

import msgspec

from gapless.sim.options import Options, draw_ordinary

__all__ = ["REGRESSIONS", "Regression"]


class Regression(msgspec.Struct, frozen=True):
    """A run that once failed."""

    reason: str
    seed: int = 0
    json: str | None = None

    def options(self) -> Options:
        """Return the options of the run."""
        return draw_ordinary(self.seed) if self.json is None else Options.of_json(self.json)


REGRESSIONS: tuple[Regression, ...] = (
    Regression("a durable subscription was answered before it was on disk", 10),
    Regression("total order locked out a pubend that began late, before the call was answered", 33),
    Regression("a filter change asked for again was answered with where the stream began", 46),
    Regression("a read under the old filter went on beyond its end", 18),
    Regression("events came before the answer that says where they begin", 117),
    Regression("a beginning in the past was told before the log was held for it", 116),
    Regression("a gap was told before the start it follows", 56),
    Regression("a position to resume from was taken for an acknowledgement", 197),
    Regression("a filter took over below what was merged before", 350),
    Regression("reads of a pubend out of reach kept all others back", 217),
    Regression("a gap was told on a stream of which nothing can match", 235),
    Regression("a repeated publication beyond the window was refused", 144),
    Regression("a time to begin from was below what was merged before", 605),
    Regression("feeds over many hops tore each other down for ever", 167),
    Regression("a filter took over below what its host had given up before a crash", 532),
    Regression("under a tiny limit only the highest gap was ever answered", 890),
    Regression("a stream that a forgetful client knew was resumed above what it owed", 794),
    Regression("what a slow receiver asked for was never answered", 263),
    Regression(
        "what was published was not found in the log, in a row with what is remembered",
        json=(
            '{"seed":60,"cells":2,"shape":"star","delta":0,"limits":{"publisher_window":4,'
            '"read_chunk_bytes":300},"publishers":5,"pubends":1,"subscribers":1,"safety_ms":1000,'
            '"liveness_ms":45000,"publish_rate":40.0,"repeat_rate":20.0,"retention_s":3600}'
        ),
    ),
    Regression(
        "after a seek below what was acknowledged a later filter governed too early",
        json=(
            '{"seed":193,"cells":4,"shape":"fan","fan_out":3,"delta":0,"limits":{"queue_bytes_max":30'
            '0,"regimes_kept":1},"delay_us_max":5000,"duplicate":0.1,"half_open":0.0,"sync_us_min":10'
            '00,"sync_us_max":20000,"together":true,"survive":0.0,"clock_error_us":100000,"rates":{"c'
            'rash":1.5,"pause":4.0,"one-way cut":0.5,"client loss":0.5,"slow client":0.5},"period_ms"'
            ':100,"down_ms_max":800,"whole_core":1.0,"liveness_ms":45000,"domain":4,"subscribers":3,"'
            'publish_rate":80.0,"batch_max":1,"churn_rate":20.0,"total":0.0,"late_pubends":0.0,"outsi'
            'de":0.0,"amnesia":0.3,"reads":0.0,"roam":0.0,"credit_max":5}'
        ),
    ),
    Regression(
        "a filter took over below what was read ahead of the live stream",
        json=(
            '{"seed":532,"cells":8,"shape":"star","delta":2,"pace":0.5,"limits":{"ack_groups":2,"'
            'cache_bytes":0,"delta_log_max":3,"nack_span_ms":1,"regimes_kept":1},"network":"datag'
            'ram","delay_us_max":10000,"duplicate":0.01,"stall":0.8,"sync_us_min":20,"sync_us_max'
            '":20000,"together":true,"survive":0.0,"torn":0.0,"clock_error_us":100000,"rates":{"c'
            'rash inside a sync":0.3,"pause":0.3,"cut":0.3,"loss":0.1,"clock jump":0.8},"quiet":0'
            '.1,"period_ms":2000,"down_ms_max":1500,"safety_ms":15000,"liveness_ms":105000,"domai'
            'n":4,"publishers":5,"subscribers":5,"publish_rate":8.0,"batch_max":8,"churn_rate":2.'
            '0,"durable":1.0,"past":0.6,"late_pubends":0.0,"widen_rate":1.0,"amnesia":0.3,"reads"'
            ':0.0,"roam":0.5}'
        ),
    ),
    Regression(
        "a hold that no read would confirm was never confirmed, and its strand never told",
        json=(
            '{"seed":1077,"cells":5,"shape":"star","fan_out":4,"pace":0.2,"network":"datagram","delay'
            '_us_min":50,"delay_us_max":10000,"half_open":0.0,"stall":0.0,"sync_us_max":1000,"togethe'
            'r":true,"survive":1.0,"torn":0.0,"clock_error_us":10000000,"rates":{"crash":2.0,"crash i'
            'nside a sync":0.75,"cut":0.75,"one-way cut":2.0,"permanent cut":0.75,"clock jump":2.0},"'
            'quiet":0.4,"down_ms_max":1600,"whole_core":1.0,"safety_ms":6000,"operations_max":128,"pu'
            'bends":3,"publishers":5,"subscribers":8,"publish_rate":20.0,"batch_max":8,"churn_rate":1'
            '.5,"total":0.5,"late_pubends":0.6,"outside":0.0,"amnesia":0.0,"credit_max":5,"retention_'
            's":3600}'
        ),
    ),
    Regression(
        "a hold was let go before the end of its durable subscription was on disk",
        json=(
            '{"seed":3003,"cells":8,"shape":"fan","fan_out":3,"brokers_per_cell":1,"delta":1,"pac'
            'e":0.1,"limits":{"cache_bytes":0,"frame_events_max":1,"publisher_window":1,"read_chu'
            'nk_bytes":300,"sets_per_session_max":2},"network":"datagram","delay_us_min":200,"del'
            'ay_us_max":10000,"duplicate":0.01,"half_open":0.0,"stall":0.3,"sync_us_min":20,"sync'
            '_us_max":1000,"together":false,"survive":0.0,"torn":0.0,"clock_error_us":100000,"rat'
            'es":{"crash":1.5,"crash inside a sync":4.0,"pause":0.5,"permanent cut":4.0,"clock ju'
            'mp":1.5,"client loss":4.0},"quiet":0.1,"period_ms":200,"down_ms_min":0,"down_ms_max"'
            ':50,"whole_core":1.0,"safety_ms":3000,"liveness_ms":45000,"operations_max":1000000,"'
            'domain":4,"pubends":3,"publishers":2,"subscribers":4,"publish_rate":12.0,"batch_max"'
            ':1,"churn_rate":3.0,"durable":0.5,"total":0.0,"past":0.6,"best_effort":0.3,"late_pub'
            'ends":0.0,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":'
            '0.0,"amnesia":0.3,"reads":0.0,"roam":0.2,"credit_max":5,"expiry":false,"expiry_s":60'
            '4800,"retention_s":1}'
        ),
    ),
    Regression(
        "a read at a damaged row kept back all others of its host",
        json=(
            '{"seed":490,"cells":4,"shape":"fan","fan_out":2,"brokers_per_cell":1,"delta":1,"pace'
            '":0.1,"limits":{"curious_ranges_max":3,"frame_events_max":1,"nack_ranges_max":2,"pre'
            'fetch_max":1,"read_chunk_bytes":300,"reads_per_shb_max":1,"table_conjunctions_max":1'
            ',"backlog_bytes":0},"network":"session","delay_us_min":250,"delay_us_max":500,"dupli'
            'cate":0.1,"half_open":0.3,"stall":0.8,"sync_us_min":100,"sync_us_max":2000,"together'
            '":true,"survive":0.5,"torn":0.2,"clock_error_us":1000,"rates":{"crash":4.0,"pause":4'
            '.0,"clock jump":0.5,"client loss":0.5,"damage":0.3},"quiet":0.4,"period_ms":200,"dow'
            'n_ms_min":0,"down_ms_max":300,"whole_core":0.0,"safety_ms":3000,"liveness_ms":45000,'
            '"operations_max":1000000,"domain":2,"pubends":2,"publishers":5,"subscribers":6,"publ'
            'ish_rate":80.0,"batch_max":3,"churn_rate":6.0,"durable":0.0,"total":0.2,"past":0.6,"'
            'best_effort":0.3,"late_pubends":0.3,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0'
            ',"stagers":0,"stage_rate":0.0,"amnesia":0.3,"reads":0.0,"roam":0.0,"credit_max":1,"e'
            'xpiry":false,"expiry_s":604800,"retention_s":0}'
        ),
    ),
    Regression(
        "a peer that had heard of a pubend spoke for a host that had not, and its news was not noted",
        json=(
            '{"seed":3635,"cells":4,"shape":"fan","fan_out":3,"brokers_per_cell":2,"delta":1,"pac'
            'e":0.1,"limits":{"frame_events_max":2},"network":"session","delay_us_min":200,"delay'
            '_us_max":2000,"duplicate":0.0,"half_open":0.0,"stall":0.0,"sync_us_min":100,"sync_us'
            '_max":2000,"together":false,"survive":0.0,"torn":0.0,"clock_error_us":0,"rates":{"pa'
            'use":0.5},"quiet":0.0,"period_ms":500,"down_ms_min":2500,"down_ms_max":4500,"whole_c'
            'ore":1.0,"inner_losses":0.0,"inner_cuts":0.0,"safety_ms":9000,"liveness_ms":45000,"o'
            'perations_max":102,"domain":4,"pubends":3,"publishers":1,"subscribers":3,"publish_ra'
            'te":20.0,"batch_max":1,"churn_rate":2.5,"durable":0.5,"total":0.0,"past":0.6,"best_e'
            'ffort":0.0,"late_pubends":0.6,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stag'
            'ers":0,"stage_rate":0.0,"amnesia":0.0,"reads":0.0,"roam":0.0,"flee":0.0,"credit_max"'
            ':20,"expiry":true,"expiry_s":604800,"retention_s":0}'
        ),
    ),
    Regression(
        "a session over relays ended whenever a link on its way was full, and never lived for long",
        json=(
            '{"seed":263,"cells":2,"fan_out":4,"brokers_per_cell":2,"limits":{"queue_bytes_max":3'
            '00},"delay_us_min":2500,"delay_us_max":5000,"half_open":0.0,"stall":0.8,"sync_us_max'
            '":1000,"survive":0.0,"torn":0.0,"rates":{"slow client":4.0},"quiet":0.1,"period_ms":'
            '400,"down_ms_max":800,"whole_core":1.0,"inner_losses":0.5,"inner_cuts":0.2,"safety_m'
            's":3000,"liveness_ms":15000,"domain":4,"publishers":2,"subscribers":1,"publish_rate"'
            ':40.0,"batch_max":1,"churn_rate":1.0,"durable":0.0,"total":0.5,"past":0.0,"late_pube'
            'nds":0.0,"outside":0.0,"amnesia":0.0,"reads":0.0,"roam":0.0}'
        ),
    ),
    Regression(
        "a log was released under a durable subscription of which no report had come before a crash",
        json=(
            '{"seed":3334,"cells":2,"fan_out":4,"brokers_per_cell":2,"pace":0.2,"network":"datagra'
            'm","half_open":0.0,"stall":0.0,"sync_us_min":1000,"sync_us_max":1000,"survive":0.0,"t'
            'orn":0.0,"rates":{"crash inside a sync":0.25,"pause":0.25,"cut":2.0},"quiet":0.4,"per'
            'iod_ms":400,"down_ms_max":1600,"whole_core":1.0,"inner_cuts":0.2,"safety_ms":4000,"li'
            'veness_ms":60000,"operations_max":58,"domain":4,"pubends":3,"publishers":5,"subscribe'
            'rs":1,"publish_rate":20.0,"churn_rate":1.5,"durable":1.0,"total":0.0,"past":0.0,"outs'
            'ide":0.0,"amnesia":0.0,"roam":0.0}'
        ),
    ),
    Regression(
        "a client that had come to a pubend elsewhere, and came home, was taken for one that missed it",
        json=(
            '{"seed":2914,"cells":2,"shape":"random","fan_out":4,"brokers_per_cell":3,"delta":3,"p'
            'ace":0.2,"limits":{},"network":"session","delay_us_min":50,"delay_us_max":2000,"dupli'
            'cate":0.0,"half_open":0.0,"stall":0.0,"sync_us_min":1000,"sync_us_max":20000,"togethe'
            'r":false,"survive":0.0,"torn":0.0,"clock_error_us":0,"rates":{"crash":2.0,"crash insi'
            'de a sync":0.25,"pause":2.0},"quiet":0.25,"period_ms":400,"down_ms_min":0,"down_ms_ma'
            'x":1600,"whole_core":1.0,"inner_losses":0.0,"inner_cuts":0.0,"safety_ms":4000,"livene'
            'ss_ms":45000,"operations_max":1000000,"domain":3,"pubends":4,"publishers":4,"subscrib'
            'ers":2,"publish_rate":20.0,"batch_max":1,"churn_rate":0.0,"durable":0.5,"total":0.0,"'
            'past":0.0,"best_effort":0.0,"late_pubends":0.6,"outside":0.0,"widen_rate":0.0,"repeat'
            '_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.0,"reads":0.0,"roam":0.0,"flee":0'
            '.5,"credit_max":100,"expiry":false,"expiry_s":604800,"retention_s":0}'
        ),
    ),
    Regression(
        "what was said before a session moved to its link was sent over the link",
        json=(
            '{"seed":2334,"cells":15,"shape":"broom","fan_out":4,"brokers_per_cell":1,"delta":4,"pa'
            'ce":0.2,"limits":{"nack_span_ms":5,"queue_bytes_max":300,"segments_max":1,"sets_per_se'
            'ssion_max":1},"network":"session","delay_us_min":50,"delay_us_max":500,"duplicate":0.1'
            ',"half_open":0.3,"stall":0.0,"sync_us_min":20,"sync_us_max":2000,"together":true,"surv'
            'ive":1.0,"torn":0.2,"clock_error_us":0,"rates":{"crash":2.0,"crash inside a sync":0.25'
            ',"cut":0.25,"one-way cut":0.75,"reset":2.0,"clock jump":0.75,"slow client":0.25},"quie'
            't":0.4,"period_ms":200,"down_ms_min":0,"down_ms_max":1600,"whole_core":0.5,"inner_loss'
            'es":0.0,"inner_cuts":0.2,"safety_ms":4000,"liveness_ms":60000,"operations_max":1000000'
            ',"domain":3,"pubends":2,"publishers":4,"subscribers":7,"publish_rate":20.0,"batch_max"'
            ':8,"churn_rate":0.25,"durable":0.5,"total":0.0,"past":0.6,"best_effort":0.3,"late_pube'
            'nds":0.0,"rivals":0.0,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"st'
            'age_rate":0.0,"amnesia":0.0,"reads":0.0,"roam":0.5,"flee":0.2,"credit_max":100,"expiry'
            '":false,"expiry_s":604800,"retention_s":0}'
        ),
    ),
    Regression(
        "a client that fled got again what it had seen, where a crash came between the record and its strands",
        json=(
            '{"seed":4141,"cells":4,"shape":"random","fan_out":2,"brokers_per_cell":2,"mixed_cells"'
            ':true,"delta":2,"pace":0.5,"limits":{"cache_bytes":300,"nack_span_ms":5,"read_chunk_by'
            'tes":300,"regimes_kept":2,"log_bytes_max":3000},"network":"session","delay_us_min":50,'
            '"delay_us_max":10000,"duplicate":0.1,"half_open":0.3,"stall":0.0,"sync_us_min":1000,"s'
            'ync_us_max":2000,"together":true,"survive":1.0,"torn":0.0,"clock_error_us":1000,"rates'
            '":{"crash":0.3,"crash inside a sync":0.8,"one-way cut":0.3,"permanent cut":0.8,"reset"'
            ':0.1,"clock jump":0.3,"client loss":0.3,"slow client":0.3},"quiet":0.1,"period_ms":100'
            '0,"down_ms_min":0,"down_ms_max":250,"outage_ms":600,"relapse":0.0,"whole_core":1.0,"in'
            'ner_losses":0.5,"inner_cuts":0.0,"safety_ms":15000,"liveness_ms":105000,"operations_ma'
            'x":1000000,"domain":4,"pubends":2,"publishers":1,"subscribers":1,"publish_rate":8.0,"b'
            'atch_max":8,"churn_rate":0.1,"durable":0.5,"total":0.2,"past":0.0,"best_effort":0.0,"l'
            'ate_pubends":0.3,"rivals":0.0,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stager'
            's":0,"stage_rate":0.0,"amnesia":0.3,"reads":0.0,"roam":0.0,"flee":0.5,"credit_max":5,"'
            'expiry":false,"expiry_s":604800,"retention_s":1}'
        ),
    ),
    Regression(
        "a filter stayed behind that governed what came again after acknowledgements were lost in a crash",
        json=(
            '{"seed":3626,"cells":3,"shape":"broom","fan_out":3,"brokers_per_cell":3,"mixed_cells":'
            'false,"delta":2,"pace":0.1,"limits":{},"network":"datagram","delay_us_min":200,"delay_'
            'us_max":1500,"duplicate":0.0,"half_open":0.3,"stall":0.0,"sync_us_min":100,"sync_us_ma'
            'x":20000,"together":false,"survive":0.5,"torn":0.2,"clock_error_us":10000000,"rates":{'
            '"crash":4.0,"crash inside a sync":4.0,"pause":1.5,"one-way cut":0.5,"permanent cut":0.'
            '5,"clock jump":0.5,"client loss":1.0,"slow client":4.0},"quiet":0.4,"period_ms":500,"d'
            'own_ms_min":0,"down_ms_max":4000,"outage_ms":600,"relapse":0.0,"whole_core":0.0,"inner'
            '_losses":0.2,"inner_cuts":0.5,"safety_ms":8000,"liveness_ms":45000,"operations_max":10'
            '00000,"domain":4,"pubends":3,"publishers":4,"subscribers":5,"publish_rate":20.0,"batch'
            '_max":3,"churn_rate":1.5000000000000002,"durable":1.0,"total":0.2,"past":0.6,"best_eff'
            'ort":0.0,"late_pubends":0.6,"rivals":0.0,"outside":0.02,"widen_rate":0.0,"repeat_rate"'
            ':0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.1,"reads":2.0,"roam":0.2,"flee":0.5,"cre'
            'dit_max":1,"expiry":false,"expiry_s":1,"retention_s":3600}'
        ),
    ),
    Regression(
        "a filter that governed nothing came back after a crash, and no other could be set",
        json=(
            '{"seed":6019,"cells":5,"shape":"star","fan_out":2,"brokers_per_cell":3,"mixed_cells":t'
            'rue,"delta":3,"pace":0.1,"limits":{"ack_groups":1,"cache_bytes":0,"curious_ranges_max"'
            ':3,"publisher_window":1,"queue_bytes_max":300,"segments_max":1,"sets_per_session_max":'
            '1},"network":"session","delay_us_min":250,"delay_us_max":500,"duplicate":0.0,"half_ope'
            'n":0.8,"stall":0.3,"sync_us_min":100,"sync_us_max":20000,"together":true,"survive":1.0'
            ',"torn":0.0,"clock_error_us":10000000,"rates":{"crash":2.0,"crash inside a sync":1.5,"'
            'cut":1.5,"permanent cut":0.5,"clock jump":1.5,"client loss":4.0,"slow client":4.0},"qu'
            'iet":0.1,"period_ms":200,"down_ms_min":0,"down_ms_max":800,"outage_ms":600,"relapse":0'
            '.0,"whole_core":0.0,"inner_losses":0.2,"inner_cuts":0.0,"safety_ms":2000,"liveness_ms"'
            ':45000,"operations_max":1000000,"domain":2,"pubends":1,"publishers":5,"subscribers":6,'
            '"publish_rate":40.0,"batch_max":8,"churn_rate":5.0,"durable":1.0,"total":0.5,"past":0.'
            '3,"best_effort":0.3,"late_pubends":0.6,"rivals":0.0,"outside":0.02,"widen_rate":0.0,"r'
            'epeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.3,"reads":0.0,"roam":0.0,"fle'
            'e":0.8,"credit_max":20,"expiry":false,"expiry_s":604800,"retention_s":0}'
        ),
    ),
)
"""Newest last."""
