"""Runs that once failed; every one of them must pass for ever.

An entry has the options of the run as JSON, all of them, so that neither a change of the generator
nor one of the defaults changes the run, and a sentence about what went wrong.
"""

from __future__ import annotations

import msgspec

from gapless_lab.sim.options import Options

__all__ = ["REGRESSIONS", "Regression"]


class Regression(msgspec.Struct, frozen=True):
    """A run that once failed."""

    reason: str
    json: str
    mark: str | None = None
    """A rare branch that the run takes as long as it still reaches what failed, if there is one."""

    def options(self) -> Options:
        """Return the options of the run."""
        return Options.of_json(self.json)


REGRESSIONS: tuple[Regression, ...] = (
    Regression(
        "a durable subscription was answered before it was on disk",
        (
            '{"seed":10,"cells":2,"shape":"star","fan_out":4,"brokers_per_cell":1,"mixed_cells":fal'
            'se,"delta":0,"pace":0.2,"limits":{},"network":"session","delay_us_min":50,"delay_us_ma'
            'x":2000,"duplicate":0.0,"half_open":0.0,"stall":0.8,"sync_us_min":1000,"sync_us_max":1'
            '000,"together":false,"survive":0.5,"torn":0.0,"clock_error_us":10000000,"rates":{"cras'
            'h inside a sync":2.0,"pause":2.0,"cut":0.75,"permanent cut":0.25,"reset":0.25,"client '
            'loss":0.75,"slow client":2.0},"quiet":0.4,"period_ms":200,"down_ms_min":0,"down_ms_max'
            '":100,"outage_ms":600,"relapse":0.0,"whole_core":1.0,"inner_losses":0.0,"inner_cuts":0'
            '.0,"safety_ms":2000,"liveness_ms":60000,"operations_max":1000000,"domain":3,"pubends":'
            '3,"publishers":3,"subscribers":4,"publish_rate":40.0,"batch_max":3,"churn_rate":10.0,"'
            'durable":0.5,"total":0.2,"past":0.6,"best_effort":0.0,"late_pubends":0.0,"rivals":0.0,'
            '"outside":0.02,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesi'
            'a":0.3,"reads":2.0,"roam":0.5,"flee":0.0,"credit_max":1,"expiry":false,"expiry_s":6048'
            '00,"retention_s":0}'
        ),
    ),
    Regression(
        "total order locked out a pubend that began late, before the call was answered",
        (
            '{"seed":33,"cells":8,"shape":"fan","fan_out":3,"brokers_per_cell":1,"mixed_cells":fals'
            'e,"delta":1,"pace":0.1,"limits":{"nack_window":1,"prefetch_max":1,"reads_per_shb_max":'
            '2},"network":"datagram","delay_us_min":50,"delay_us_max":2000,"duplicate":0.01,"half_o'
            'pen":0.3,"stall":0.3,"sync_us_min":100,"sync_us_max":2000,"together":false,"survive":1'
            '.0,"torn":0.0,"clock_error_us":0,"rates":{"crash":4.0,"pause":4.0,"clock jump":1.5,"cl'
            'ient loss":1.5,"slow client":0.5},"quiet":0.4,"period_ms":100,"down_ms_min":0,"down_ms'
            '_max":50,"outage_ms":600,"relapse":0.0,"whole_core":1.0,"inner_losses":0.0,"inner_cuts'
            '":0.0,"safety_ms":3000,"liveness_ms":45000,"operations_max":1000000,"domain":2,"pubend'
            's":4,"publishers":5,"subscribers":2,"publish_rate":40.0,"batch_max":8,"churn_rate":10.'
            '0,"durable":0.0,"total":0.5,"past":0.6,"best_effort":0.0,"late_pubends":0.3,"rivals":0'
            '.0,"outside":0.02,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amn'
            'esia":0.0,"reads":2.0,"roam":0.0,"flee":0.0,"credit_max":20,"expiry":false,"expiry_s":'
            '604800,"retention_s":0}'
        ),
        mark="began before it came",
    ),
    Regression(
        "a filter change asked for again was answered with where the stream began",
        (
            '{"seed":46,"cells":4,"shape":"random","fan_out":4,"brokers_per_cell":1,"mixed_cells":f'
            'alse,"delta":0,"pace":0.1,"limits":{},"network":"datagram","delay_us_min":200,"delay_u'
            's_max":500,"duplicate":0.1,"half_open":0.0,"stall":0.0,"sync_us_min":20,"sync_us_max":'
            '2000,"together":false,"survive":0.5,"torn":0.2,"clock_error_us":0,"rates":{"crash insi'
            'de a sync":4.0,"one-way cut":4.0,"permanent cut":0.5,"clock jump":0.5,"client loss":4.'
            '0},"quiet":0.1,"period_ms":200,"down_ms_min":0,"down_ms_max":300,"outage_ms":600,"rela'
            'pse":0.0,"whole_core":0.0,"inner_losses":0.0,"inner_cuts":0.0,"safety_ms":3000,"livene'
            'ss_ms":45000,"operations_max":1000000,"domain":2,"pubends":4,"publishers":3,"subscribe'
            'rs":4,"publish_rate":40.0,"batch_max":1,"churn_rate":10.0,"durable":1.0,"total":0.0,"p'
            'ast":0.0,"best_effort":0.0,"late_pubends":0.3,"rivals":0.0,"outside":0.02,"widen_rate"'
            ':0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.3,"reads":2.0,"roam":0'
            '.5,"flee":0.0,"credit_max":100,"expiry":false,"expiry_s":604800,"retention_s":3600}'
        ),
    ),
    Regression(
        "a read under the old filter went on beyond its end",
        (
            '{"seed":18,"cells":8,"shape":"broom","fan_out":3,"brokers_per_cell":1,"mixed_cells":fa'
            'lse,"delta":1,"pace":0.2,"limits":{},"network":"session","delay_us_min":50,"delay_us_m'
            'ax":10000,"duplicate":0.01,"half_open":0.8,"stall":0.0,"sync_us_min":1000,"sync_us_max'
            '":20000,"together":false,"survive":1.0,"torn":0.0,"clock_error_us":100000,"rates":{"cr'
            'ash inside a sync":0.25,"reset":0.25,"client loss":0.75,"slow client":2.0,"damage":0.1'
            '5},"quiet":0.4,"period_ms":200,"down_ms_min":0,"down_ms_max":100,"outage_ms":600,"rela'
            'pse":0.0,"whole_core":1.0,"inner_losses":0.0,"inner_cuts":0.0,"safety_ms":6000,"livene'
            'ss_ms":60000,"operations_max":1000000,"domain":3,"pubends":3,"publishers":5,"subscribe'
            'rs":6,"publish_rate":40.0,"batch_max":3,"churn_rate":10.0,"durable":0.5,"total":0.0,"p'
            'ast":0.0,"best_effort":0.0,"late_pubends":0.0,"rivals":0.0,"outside":0.0,"widen_rate":'
            '0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.0,"reads":2.0,"roam":0.'
            '0,"flee":0.0,"credit_max":5,"expiry":false,"expiry_s":604800,"retention_s":1}'
        ),
    ),
    Regression(
        "events came before the answer that says where they begin",
        (
            '{"seed":117,"cells":4,"shape":"random","fan_out":4,"brokers_per_cell":1,"mixed_cells":'
            'false,"delta":0,"pace":0.2,"limits":{"ack_groups":1,"read_chunk_bytes":1,"sets_per_ses'
            'sion_max":2},"network":"datagram","delay_us_min":250,"delay_us_max":500,"duplicate":0.'
            '1,"half_open":0.3,"stall":0.8,"sync_us_min":20,"sync_us_max":1000,"together":false,"su'
            'rvive":0.0,"torn":0.0,"clock_error_us":0,"rates":{"crash":0.75,"one-way cut":0.25,"clo'
            'ck jump":2.0},"quiet":0.1,"period_ms":400,"down_ms_min":0,"down_ms_max":100,"outage_ms'
            '":600,"relapse":0.0,"whole_core":1.0,"inner_losses":0.0,"inner_cuts":0.0,"safety_ms":4'
            '000,"liveness_ms":60000,"operations_max":1000000,"domain":3,"pubends":4,"publishers":1'
            ',"subscribers":6,"publish_rate":20.0,"batch_max":8,"churn_rate":0.25,"durable":1.0,"to'
            'tal":0.0,"past":0.6,"best_effort":0.0,"late_pubends":0.6,"rivals":0.0,"outside":0.0,"w'
            'iden_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.1,"reads":0.'
            '0,"roam":0.2,"flee":0.0,"credit_max":1,"expiry":false,"expiry_s":604800,"retention_s":'
            "3600}"
        ),
    ),
    Regression(
        "a beginning in the past was told before the log was held for it",
        (
            '{"seed":116,"cells":5,"shape":"star","fan_out":4,"brokers_per_cell":1,"mixed_cells":fa'
            'lse,"delta":2,"pace":0.1,"limits":{"queue_bytes_max":3000,"reads_per_shb_max":1,"table'
            '_conjunctions_max":3},"network":"session","delay_us_min":1000,"delay_us_max":2000,"dup'
            'licate":0.1,"half_open":0.3,"stall":0.0,"sync_us_min":20,"sync_us_max":2000,"together"'
            ':false,"survive":0.5,"torn":0.2,"clock_error_us":0,"rates":{"crash inside a sync":4.0,'
            '"pause":1.5,"cut":0.5,"one-way cut":1.5,"permanent cut":1.5,"reset":4.0,"clock jump":4'
            '.0,"client loss":1.5},"quiet":0.4,"period_ms":200,"down_ms_min":0,"down_ms_max":800,"o'
            'utage_ms":600,"relapse":0.0,"whole_core":1.0,"inner_losses":0.0,"inner_cuts":0.0,"safe'
            'ty_ms":3000,"liveness_ms":45000,"operations_max":1000000,"domain":2,"pubends":1,"publi'
            'shers":1,"subscribers":8,"publish_rate":80.0,"batch_max":3,"churn_rate":6.0,"durable":'
            '1.0,"total":0.0,"past":0.3,"best_effort":0.0,"late_pubends":0.3,"rivals":0.0,"outside"'
            ':0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.3,"re'
            'ads":0.0,"roam":0.5,"flee":0.0,"credit_max":100,"expiry":false,"expiry_s":604800,"rete'
            'ntion_s":0}'
        ),
    ),
    Regression(
        "a gap was told before the start it follows",
        (
            '{"seed":56,"cells":3,"shape":"line","fan_out":3,"brokers_per_cell":1,"mixed_cells":fal'
            'se,"delta":3,"pace":0.2,"limits":{},"network":"session","delay_us_min":50,"delay_us_ma'
            'x":500,"duplicate":0.1,"half_open":0.8,"stall":0.3,"sync_us_min":1000,"sync_us_max":10'
            '00,"together":false,"survive":0.5,"torn":0.0,"clock_error_us":1000,"rates":{"crash":2.'
            '0,"crash inside a sync":2.0,"one-way cut":0.25,"client loss":0.75,"slow client":0.25},'
            '"quiet":0.25,"period_ms":800,"down_ms_min":0,"down_ms_max":100,"outage_ms":600,"relaps'
            'e":0.0,"whole_core":0.5,"inner_losses":0.0,"inner_cuts":0.0,"safety_ms":4000,"liveness'
            '_ms":60000,"operations_max":1000000,"domain":4,"pubends":2,"publishers":5,"subscribers'
            '":6,"publish_rate":6.0,"batch_max":8,"churn_rate":0.075,"durable":0.5,"total":0.0,"pas'
            't":0.0,"best_effort":0.0,"late_pubends":0.0,"rivals":0.0,"outside":0.02,"widen_rate":0'
            '.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.3,"reads":0.0,"roam":0.0'
            ',"flee":0.0,"credit_max":1,"expiry":false,"expiry_s":604800,"retention_s":0}'
        ),
    ),
    Regression(
        "a position to resume from was taken for an acknowledgement",
        (
            '{"seed":197,"cells":3,"shape":"fan","fan_out":3,"brokers_per_cell":1,"mixed_cells":fal'
            'se,"delta":1,"pace":0.2,"limits":{},"network":"session","delay_us_min":2500,"delay_us_'
            'max":5000,"duplicate":0.01,"half_open":0.8,"stall":0.8,"sync_us_min":20,"sync_us_max":'
            '20000,"together":false,"survive":0.5,"torn":0.0,"clock_error_us":0,"rates":{"crash":2.'
            '0,"crash inside a sync":0.25,"permanent cut":0.25,"clock jump":0.75,"client loss":2.0,'
            '"slow client":0.25,"damage":0.15},"quiet":0.1,"period_ms":400,"down_ms_min":0,"down_ms'
            '_max":100,"outage_ms":600,"relapse":0.0,"whole_core":0.0,"inner_losses":0.0,"inner_cut'
            's":0.0,"safety_ms":6000,"liveness_ms":60000,"operations_max":1000000,"domain":2,"puben'
            'ds":4,"publishers":4,"subscribers":8,"publish_rate":6.0,"batch_max":1,"churn_rate":0.0'
            '75,"durable":0.5,"total":0.2,"past":0.6,"best_effort":0.3,"late_pubends":0.0,"rivals":'
            '0.0,"outside":0.02,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"am'
            'nesia":0.1,"reads":0.0,"roam":0.5,"flee":0.0,"credit_max":20,"expiry":true,"expiry_s":'
            '604800,"retention_s":0}'
        ),
    ),
    Regression(
        "a filter took over below what was merged before",
        (
            '{"seed":350,"cells":12,"shape":"random","fan_out":3,"brokers_per_cell":1,"mixed_cells"'
            ':false,"delta":1,"pace":0.1,"limits":{"ack_groups":2,"regimes_kept":1},"network":"data'
            'gram","delay_us_min":50,"delay_us_max":10000,"duplicate":0.0,"half_open":0.8,"stall":0'
            '.8,"sync_us_min":100,"sync_us_max":20000,"together":false,"survive":0.0,"torn":0.2,"cl'
            'ock_error_us":0,"rates":{"crash":4.0,"crash inside a sync":0.5,"pause":0.5,"permanent '
            'cut":4.0,"clock jump":4.0,"client loss":1.5},"quiet":0.25,"period_ms":100,"down_ms_min'
            '":0,"down_ms_max":300,"outage_ms":600,"relapse":0.0,"whole_core":0.5,"inner_losses":0.'
            '0,"inner_cuts":0.0,"safety_ms":3000,"liveness_ms":45000,"operations_max":1000000,"doma'
            'in":2,"pubends":2,"publishers":3,"subscribers":8,"publish_rate":40.0,"batch_max":8,"ch'
            'urn_rate":3.0,"durable":0.5,"total":0.5,"past":0.6,"best_effort":0.0,"late_pubends":0.'
            '0,"rivals":0.0,"outside":0.02,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_ra'
            'te":0.0,"amnesia":0.1,"reads":2.0,"roam":0.2,"flee":0.0,"credit_max":100,"expiry":true'
            ',"expiry_s":604800,"retention_s":3600}'
        ),
    ),
    Regression(
        "reads of a pubend out of reach kept all others back",
        (
            '{"seed":217,"cells":3,"shape":"broom","fan_out":4,"brokers_per_cell":1,"mixed_cells":f'
            'alse,"delta":0,"pace":0.1,"limits":{"reads_per_shb_max":1,"regimes_kept":2},"network":'
            '"datagram","delay_us_min":200,"delay_us_max":5000,"duplicate":0.01,"half_open":0.0,"st'
            'all":0.3,"sync_us_min":100,"sync_us_max":2000,"together":false,"survive":0.5,"torn":0.'
            '2,"clock_error_us":0,"rates":{"crash":0.5,"crash inside a sync":4.0,"pause":4.0,"cut":'
            '1.5,"loss":0.5,"clock jump":1.5,"client loss":0.5},"quiet":0.4,"period_ms":400,"down_m'
            's_min":0,"down_ms_max":800,"outage_ms":600,"relapse":0.0,"whole_core":0.0,"inner_losse'
            's":0.0,"inner_cuts":0.0,"safety_ms":3000,"liveness_ms":45000,"operations_max":1000000,'
            '"domain":3,"pubends":3,"publishers":2,"subscribers":3,"publish_rate":80.0,"batch_max":'
            '1,"churn_rate":20.0,"durable":0.0,"total":0.2,"past":0.3,"best_effort":0.0,"late_puben'
            'ds":0.3,"rivals":0.0,"outside":0.02,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"st'
            'age_rate":0.0,"amnesia":0.0,"reads":0.0,"roam":0.5,"flee":0.0,"credit_max":1,"expiry":'
            'false,"expiry_s":604800,"retention_s":1}'
        ),
    ),
    Regression(
        "a gap was told on a stream of which nothing can match",
        (
            '{"seed":235,"cells":3,"shape":"random","fan_out":3,"brokers_per_cell":1,"mixed_cells":'
            'false,"delta":1,"pace":0.1,"limits":{},"network":"session","delay_us_min":1000,"delay_'
            'us_max":2000,"duplicate":0.0,"half_open":0.3,"stall":0.8,"sync_us_min":20,"sync_us_max'
            '":20000,"together":false,"survive":0.0,"torn":0.0,"clock_error_us":10000000,"rates":{"'
            'crash":0.5,"pause":1.5,"cut":4.0},"quiet":0.4,"period_ms":100,"down_ms_min":0,"down_ms'
            '_max":50,"outage_ms":600,"relapse":0.0,"whole_core":0.5,"inner_losses":0.0,"inner_cuts'
            '":0.0,"safety_ms":3000,"liveness_ms":45000,"operations_max":1000000,"domain":4,"pubend'
            's":4,"publishers":5,"subscribers":5,"publish_rate":40.0,"batch_max":1,"churn_rate":3.0'
            ',"durable":1.0,"total":0.0,"past":0.3,"best_effort":0.0,"late_pubends":0.6,"rivals":0.'
            '0,"outside":0.02,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amne'
            'sia":0.0,"reads":2.0,"roam":0.0,"flee":0.0,"credit_max":1,"expiry":false,"expiry_s":60'
            '4800,"retention_s":1}'
        ),
    ),
    Regression(
        "a repeated publication beyond the window was refused",
        (
            '{"seed":144,"cells":4,"shape":"random","fan_out":2,"brokers_per_cell":1,"mixed_cells":'
            'false,"delta":1,"pace":0.1,"limits":{"frame_events_max":1,"join_hold":3,"nack_window":'
            '2,"prefetch_max":3,"publisher_window":1,"queue_bytes_max":3000,"table_conjunctions_max'
            '":1},"network":"session","delay_us_min":2500,"delay_us_max":5000,"duplicate":0.1,"half'
            '_open":0.0,"stall":0.3,"sync_us_min":1000,"sync_us_max":20000,"together":false,"surviv'
            'e":1.0,"torn":0.2,"clock_error_us":0,"rates":{"crash inside a sync":4.0,"pause":1.5,"c'
            'ut":1.5,"one-way cut":1.5,"client loss":1.5,"slow client":4.0},"quiet":0.1,"period_ms"'
            ':100,"down_ms_min":0,"down_ms_max":300,"outage_ms":600,"relapse":0.0,"whole_core":0.5,'
            '"inner_losses":0.0,"inner_cuts":0.0,"safety_ms":1000,"liveness_ms":45000,"operations_m'
            'ax":1000000,"domain":3,"pubends":2,"publishers":1,"subscribers":6,"publish_rate":40.0,'
            '"batch_max":3,"churn_rate":3.0,"durable":0.0,"total":0.5,"past":0.6,"best_effort":0.0,'
            '"late_pubends":0.0,"rivals":0.0,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stag'
            'ers":0,"stage_rate":0.0,"amnesia":0.0,"reads":2.0,"roam":0.5,"flee":0.0,"credit_max":2'
            '0,"expiry":false,"expiry_s":604800,"retention_s":0}'
        ),
    ),
    Regression(
        "a time to begin from was below what was merged before",
        (
            '{"seed":605,"cells":4,"shape":"random","fan_out":3,"brokers_per_cell":1,"mixed_cells":'
            'false,"delta":2,"pace":0.1,"limits":{},"network":"datagram","delay_us_min":5000,"delay'
            '_us_max":10000,"duplicate":0.01,"half_open":0.8,"stall":0.3,"sync_us_min":1000,"sync_u'
            's_max":20000,"together":false,"survive":0.0,"torn":0.2,"clock_error_us":100000,"rates"'
            ':{"crash inside a sync":1.5,"one-way cut":1.5,"loss":1.5,"clock jump":4.0,"slow client'
            '":1.5},"quiet":0.1,"period_ms":400,"down_ms_min":0,"down_ms_max":800,"outage_ms":600,"'
            'relapse":0.0,"whole_core":1.0,"inner_losses":0.0,"inner_cuts":0.0,"safety_ms":3000,"li'
            'veness_ms":45000,"operations_max":1000000,"domain":3,"pubends":4,"publishers":3,"subsc'
            'ribers":8,"publish_rate":80.0,"batch_max":8,"churn_rate":1.0,"durable":1.0,"total":0.5'
            ',"past":0.6,"best_effort":0.0,"late_pubends":0.3,"rivals":0.0,"outside":0.02,"widen_ra'
            'te":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.0,"reads":4.0,"roam'
            '":0.0,"flee":0.0,"credit_max":1,"expiry":true,"expiry_s":604800,"retention_s":0}'
        ),
    ),
    Regression(
        "feeds over many hops tore each other down for ever",
        (
            '{"seed":167,"cells":12,"shape":"line","fan_out":3,"brokers_per_cell":1,"mixed_cells":f'
            'alse,"delta":1,"pace":0.1,"limits":{},"network":"session","delay_us_min":200,"delay_us'
            '_max":10000,"duplicate":0.0,"half_open":0.8,"stall":0.3,"sync_us_min":20,"sync_us_max"'
            ':2000,"together":false,"survive":0.5,"torn":0.2,"clock_error_us":0,"rates":{"one-way c'
            'ut":4.0},"quiet":0.25,"period_ms":200,"down_ms_min":0,"down_ms_max":50,"outage_ms":600'
            ',"relapse":0.0,"whole_core":1.0,"inner_losses":0.0,"inner_cuts":0.0,"safety_ms":2000,"'
            'liveness_ms":45000,"operations_max":1000000,"domain":4,"pubends":4,"publishers":5,"sub'
            'scribers":7,"publish_rate":40.0,"batch_max":3,"churn_rate":0.5,"durable":0.5,"total":0'
            '.2,"past":0.3,"best_effort":0.0,"late_pubends":0.3,"rivals":0.0,"outside":0.02,"widen_'
            'rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.3,"reads":0.0,"ro'
            'am":0.2,"flee":0.0,"credit_max":1,"expiry":false,"expiry_s":604800,"retention_s":3600}'
        ),
        mark="feed moved",
    ),
    Regression(
        "a filter took over below what its host had given up before a crash",
        (
            '{"seed":532,"cells":8,"shape":"star","fan_out":2,"brokers_per_cell":1,"mixed_cells":fa'
            'lse,"delta":2,"pace":0.5,"limits":{"ack_groups":2,"cache_bytes":0,"delta_log_max":3,"n'
            'ack_span_ms":1,"regimes_kept":1},"network":"datagram","delay_us_min":200,"delay_us_max'
            '":10000,"duplicate":0.01,"half_open":0.3,"stall":0.8,"sync_us_min":20,"sync_us_max":20'
            '000,"together":false,"survive":0.0,"torn":0.0,"clock_error_us":100000,"rates":{"crash '
            'inside a sync":0.3,"pause":0.3,"cut":0.3,"loss":0.1,"clock jump":0.8},"quiet":0.1,"per'
            'iod_ms":2000,"down_ms_min":0,"down_ms_max":1500,"outage_ms":600,"relapse":0.0,"whole_c'
            'ore":0.5,"inner_losses":0.0,"inner_cuts":0.0,"safety_ms":15000,"liveness_ms":105000,"o'
            'perations_max":1000000,"domain":4,"pubends":2,"publishers":5,"subscribers":5,"publish_'
            'rate":8.0,"batch_max":8,"churn_rate":2.0,"durable":1.0,"total":0.2,"past":0.6,"best_ef'
            'fort":0.3,"late_pubends":0.0,"rivals":0.0,"outside":0.0,"widen_rate":0.0,"repeat_rate"'
            ':0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.3,"reads":0.0,"roam":0.5,"flee":0.0,"cre'
            'dit_max":20,"expiry":false,"expiry_s":604800,"retention_s":0}'
        ),
    ),
    Regression(
        "under a tiny limit only the highest gap was ever answered",
        (
            '{"seed":890,"cells":6,"shape":"line","fan_out":2,"brokers_per_cell":1,"mixed_cells":fa'
            'lse,"delta":1,"pace":0.1,"limits":{"cache_bytes":300,"curious_ranges_max":1,"frame_eve'
            'nts_max":1,"prefetch_max":1,"read_chunk_bytes":300},"network":"session","delay_us_min"'
            ':200,"delay_us_max":2000,"duplicate":0.0,"half_open":0.8,"stall":0.8,"sync_us_min":100'
            ',"sync_us_max":1000,"together":false,"survive":1.0,"torn":0.0,"clock_error_us":0,"rate'
            's":{"crash inside a sync":0.5,"pause":0.5,"cut":1.5,"permanent cut":0.5,"reset":0.5,"c'
            'lock jump":1.5,"slow client":4.0},"quiet":0.25,"period_ms":400,"down_ms_min":0,"down_m'
            's_max":4000,"outage_ms":600,"relapse":0.0,"whole_core":0.0,"inner_losses":0.0,"inner_c'
            'uts":0.0,"safety_ms":2000,"liveness_ms":45000,"operations_max":1000000,"domain":4,"pub'
            'ends":2,"publishers":5,"subscribers":6,"publish_rate":40.0,"batch_max":3,"churn_rate":'
            '3.0,"durable":0.5,"total":0.0,"past":0.6,"best_effort":0.0,"late_pubends":0.3,"rivals"'
            ':0.0,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"am'
            'nesia":0.1,"reads":0.0,"roam":0.2,"flee":0.0,"credit_max":100,"expiry":false,"expiry_s'
            '":604800,"retention_s":3600}'
        ),
    ),
    Regression(
        "a stream that a forgetful client knew was resumed above what it owed",
        (
            '{"seed":794,"cells":3,"shape":"random","fan_out":3,"brokers_per_cell":1,"mixed_cells":'
            'false,"delta":2,"pace":0.1,"limits":{"reads_per_shb_max":1,"regimes_kept":2},"network"'
            ':"session","delay_us_min":5000,"delay_us_max":10000,"duplicate":0.01,"half_open":0.0,"'
            'stall":0.3,"sync_us_min":1000,"sync_us_max":2000,"together":false,"survive":0.0,"torn"'
            ':0.2,"clock_error_us":0,"rates":{"crash":4.0,"crash inside a sync":4.0,"cut":0.5,"one-'
            'way cut":4.0,"permanent cut":1.5,"clock jump":1.5,"slow client":0.5},"quiet":0.25,"per'
            'iod_ms":400,"down_ms_min":0,"down_ms_max":300,"outage_ms":600,"relapse":0.0,"whole_cor'
            'e":0.5,"inner_losses":0.0,"inner_cuts":0.0,"safety_ms":2000,"liveness_ms":45000,"opera'
            'tions_max":1000000,"domain":4,"pubends":3,"publishers":5,"subscribers":8,"publish_rate'
            '":40.0,"batch_max":8,"churn_rate":3.0,"durable":1.0,"total":0.2,"past":0.3,"best_effor'
            't":0.0,"late_pubends":0.6,"rivals":0.0,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.'
            '0,"stagers":0,"stage_rate":0.0,"amnesia":0.3,"reads":0.0,"roam":0.0,"flee":0.0,"credit'
            '_max":100,"expiry":false,"expiry_s":604800,"retention_s":1}'
        ),
    ),
    Regression(
        "what a slow receiver asked for was never answered",
        (
            '{"seed":263,"cells":2,"shape":"line","fan_out":4,"brokers_per_cell":1,"mixed_cells":fa'
            'lse,"delta":3,"pace":0.1,"limits":{"curious_ranges_max":1,"nack_span_ms":1,"prefetch_m'
            'ax":3,"queue_bytes_max":300},"network":"session","delay_us_min":2500,"delay_us_max":50'
            '00,"duplicate":0.1,"half_open":0.0,"stall":0.8,"sync_us_min":100,"sync_us_max":1000,"t'
            'ogether":false,"survive":0.0,"torn":0.2,"clock_error_us":0,"rates":{"crash inside a sy'
            'nc":4.0,"one-way cut":4.0,"reset":1.5,"slow client":4.0},"quiet":0.4,"period_ms":400,"'
            'down_ms_min":0,"down_ms_max":800,"outage_ms":600,"relapse":0.0,"whole_core":1.0,"inner'
            '_losses":0.0,"inner_cuts":0.0,"safety_ms":3000,"liveness_ms":45000,"operations_max":10'
            '00000,"domain":4,"pubends":2,"publishers":5,"subscribers":5,"publish_rate":80.0,"batch'
            '_max":3,"churn_rate":1.0,"durable":0.0,"total":0.5,"past":0.3,"best_effort":0.0,"late_'
            'pubends":0.3,"rivals":0.0,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0'
            ',"stage_rate":0.0,"amnesia":0.3,"reads":4.0,"roam":0.5,"flee":0.0,"credit_max":20,"exp'
            'iry":false,"expiry_s":604800,"retention_s":0}'
        ),
        mark="receiver was slow",
    ),
    Regression(
        "what was published was not found in the log, in a row with what is remembered",
        (
            '{"seed":60,"cells":2,"shape":"star","fan_out":2,"brokers_per_cell":1,"mixed_cells":fal'
            'se,"delta":0,"pace":0.1,"limits":{"publisher_window":4,"read_chunk_bytes":300},"networ'
            'k":"session","delay_us_min":200,"delay_us_max":2000,"duplicate":0.0,"half_open":0.3,"s'
            'tall":0.3,"sync_us_min":100,"sync_us_max":2000,"together":false,"survive":0.5,"torn":0'
            '.2,"clock_error_us":0,"rates":{},"quiet":0.25,"period_ms":200,"down_ms_min":0,"down_ms'
            '_max":600,"outage_ms":600,"relapse":0.0,"whole_core":0.5,"inner_losses":0.0,"inner_cut'
            's":0.0,"safety_ms":1000,"liveness_ms":45000,"operations_max":1000000,"domain":3,"puben'
            'ds":1,"publishers":5,"subscribers":1,"publish_rate":40.0,"batch_max":3,"churn_rate":5.'
            '0,"durable":0.5,"total":0.2,"past":0.3,"best_effort":0.0,"late_pubends":0.3,"rivals":0'
            '.0,"outside":0.02,"widen_rate":0.0,"repeat_rate":20.0,"stagers":0,"stage_rate":0.0,"am'
            'nesia":0.1,"reads":1.0,"roam":0.2,"flee":0.0,"credit_max":20,"expiry":false,"expiry_s"'
            ':604800,"retention_s":3600}'
        ),
    ),
    Regression(
        "after a seek below what was acknowledged a later filter governed too early",
        (
            '{"seed":193,"cells":4,"shape":"fan","fan_out":3,"brokers_per_cell":1,"mixed_cells":fal'
            'se,"delta":0,"pace":0.1,"limits":{"queue_bytes_max":300,"regimes_kept":1},"network":"s'
            'ession","delay_us_min":200,"delay_us_max":5000,"duplicate":0.1,"half_open":0.0,"stall"'
            ':0.3,"sync_us_min":1000,"sync_us_max":20000,"together":true,"survive":0.0,"torn":0.2,"'
            'clock_error_us":100000,"rates":{"crash":1.5,"pause":4.0,"one-way cut":0.5,"client loss'
            '":0.5,"slow client":0.5},"quiet":0.25,"period_ms":100,"down_ms_min":0,"down_ms_max":80'
            '0,"outage_ms":600,"relapse":0.0,"whole_core":1.0,"inner_losses":0.0,"inner_cuts":0.0,"'
            'safety_ms":2000,"liveness_ms":45000,"operations_max":1000000,"domain":4,"pubends":2,"p'
            'ublishers":3,"subscribers":3,"publish_rate":80.0,"batch_max":1,"churn_rate":20.0,"dura'
            'ble":0.5,"total":0.0,"past":0.3,"best_effort":0.0,"late_pubends":0.0,"rivals":0.0,"out'
            'side":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.'
            '3,"reads":0.0,"roam":0.0,"flee":0.0,"credit_max":5,"expiry":false,"expiry_s":604800,"r'
            'etention_s":0}'
        ),
    ),
    Regression(
        "a filter took over below what was read ahead of the live stream",
        (
            '{"seed":532,"cells":8,"shape":"star","fan_out":2,"brokers_per_cell":1,"mixed_cells":fa'
            'lse,"delta":2,"pace":0.5,"limits":{"ack_groups":2,"cache_bytes":0,"delta_log_max":3,"n'
            'ack_span_ms":1,"regimes_kept":1},"network":"datagram","delay_us_min":200,"delay_us_max'
            '":10000,"duplicate":0.01,"half_open":0.3,"stall":0.8,"sync_us_min":20,"sync_us_max":20'
            '000,"together":true,"survive":0.0,"torn":0.0,"clock_error_us":100000,"rates":{"crash i'
            'nside a sync":0.3,"pause":0.3,"cut":0.3,"loss":0.1,"clock jump":0.8},"quiet":0.1,"peri'
            'od_ms":2000,"down_ms_min":0,"down_ms_max":1500,"outage_ms":600,"relapse":0.0,"whole_co'
            're":0.5,"inner_losses":0.0,"inner_cuts":0.0,"safety_ms":15000,"liveness_ms":105000,"op'
            'erations_max":1000000,"domain":4,"pubends":2,"publishers":5,"subscribers":5,"publish_r'
            'ate":8.0,"batch_max":8,"churn_rate":2.0,"durable":1.0,"total":0.2,"past":0.6,"best_eff'
            'ort":0.0,"late_pubends":0.0,"rivals":0.0,"outside":0.02,"widen_rate":1.0,"repeat_rate"'
            ':0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.3,"reads":0.0,"roam":0.5,"flee":0.0,"cre'
            'dit_max":20,"expiry":false,"expiry_s":604800,"retention_s":0}'
        ),
    ),
    Regression(
        "a hold that no read would confirm was never confirmed, and its strand never told",
        (
            '{"seed":1077,"cells":5,"shape":"star","fan_out":4,"brokers_per_cell":1,"mixed_cells":f'
            'alse,"delta":1,"pace":0.2,"limits":{},"network":"datagram","delay_us_min":50,"delay_us'
            '_max":10000,"duplicate":0.0,"half_open":0.0,"stall":0.0,"sync_us_min":100,"sync_us_max'
            '":1000,"together":true,"survive":1.0,"torn":0.0,"clock_error_us":10000000,"rates":{"cr'
            'ash":2.0,"crash inside a sync":0.75,"cut":0.75,"one-way cut":2.0,"permanent cut":0.75,'
            '"clock jump":2.0},"quiet":0.4,"period_ms":200,"down_ms_min":0,"down_ms_max":1600,"outa'
            'ge_ms":600,"relapse":0.0,"whole_core":1.0,"inner_losses":0.0,"inner_cuts":0.0,"safety_'
            'ms":6000,"liveness_ms":30000,"operations_max":128,"domain":3,"pubends":3,"publishers":'
            '5,"subscribers":8,"publish_rate":20.0,"batch_max":8,"churn_rate":1.5,"durable":0.5,"to'
            'tal":0.5,"past":0.3,"best_effort":0.0,"late_pubends":0.6,"rivals":0.0,"outside":0.0,"w'
            'iden_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.0,"reads":1.'
            '0,"roam":0.2,"flee":0.0,"credit_max":5,"expiry":false,"expiry_s":604800,"retention_s":'
            "3600}"
        ),
    ),
    Regression(
        "a hold was let go before the end of its durable subscription was on disk",
        (
            '{"seed":3003,"cells":8,"shape":"fan","fan_out":3,"brokers_per_cell":1,"mixed_cells":fa'
            'lse,"delta":1,"pace":0.1,"limits":{"cache_bytes":0,"frame_events_max":1,"publisher_win'
            'dow":1,"read_chunk_bytes":300,"sets_per_session_max":2},"network":"datagram","delay_us'
            '_min":200,"delay_us_max":10000,"duplicate":0.01,"half_open":0.0,"stall":0.3,"sync_us_m'
            'in":20,"sync_us_max":1000,"together":false,"survive":0.0,"torn":0.0,"clock_error_us":1'
            '00000,"rates":{"crash":1.5,"crash inside a sync":4.0,"pause":0.5,"permanent cut":4.0,"'
            'clock jump":1.5,"client loss":4.0},"quiet":0.1,"period_ms":200,"down_ms_min":0,"down_m'
            's_max":50,"outage_ms":600,"relapse":0.0,"whole_core":1.0,"inner_losses":0.0,"inner_cut'
            's":0.0,"safety_ms":3000,"liveness_ms":45000,"operations_max":1000000,"domain":4,"puben'
            'ds":3,"publishers":2,"subscribers":4,"publish_rate":12.0,"batch_max":1,"churn_rate":3.'
            '0,"durable":0.5,"total":0.0,"past":0.6,"best_effort":0.3,"late_pubends":0.0,"rivals":0'
            '.0,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amne'
            'sia":0.3,"reads":0.0,"roam":0.2,"flee":0.0,"credit_max":5,"expiry":false,"expiry_s":60'
            '4800,"retention_s":1}'
        ),
    ),
    Regression(
        "a read at a damaged row kept back all others of its host",
        (
            '{"seed":490,"cells":4,"shape":"fan","fan_out":2,"brokers_per_cell":1,"mixed_cells":fal'
            'se,"delta":1,"pace":0.1,"limits":{"curious_ranges_max":3,"frame_events_max":1,"nack_ra'
            'nges_max":2,"prefetch_max":1,"read_chunk_bytes":300,"reads_per_shb_max":1,"table_conju'
            'nctions_max":1,"backlog_bytes":0},"network":"session","delay_us_min":250,"delay_us_max'
            '":500,"duplicate":0.1,"half_open":0.3,"stall":0.8,"sync_us_min":100,"sync_us_max":2000'
            ',"together":true,"survive":0.5,"torn":0.2,"clock_error_us":1000,"rates":{"crash":4.0,"'
            'pause":4.0,"clock jump":0.5,"client loss":0.5,"damage":0.3},"quiet":0.4,"period_ms":20'
            '0,"down_ms_min":0,"down_ms_max":300,"outage_ms":600,"relapse":0.0,"whole_core":0.0,"in'
            'ner_losses":0.0,"inner_cuts":0.0,"safety_ms":3000,"liveness_ms":45000,"operations_max"'
            ':1000000,"domain":2,"pubends":2,"publishers":5,"subscribers":6,"publish_rate":80.0,"ba'
            'tch_max":3,"churn_rate":6.0,"durable":0.0,"total":0.2,"past":0.6,"best_effort":0.3,"la'
            'te_pubends":0.3,"rivals":0.0,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers'
            '":0,"stage_rate":0.0,"amnesia":0.3,"reads":0.0,"roam":0.0,"flee":0.0,"credit_max":1,"e'
            'xpiry":false,"expiry_s":604800,"retention_s":0}'
        ),
        mark="damaged log row",
    ),
    Regression(
        "a peer that had heard of a pubend spoke for a host that had not, and its news was not noted",
        (
            '{"seed":3635,"cells":4,"shape":"fan","fan_out":3,"brokers_per_cell":2,"mixed_cells":fa'
            'lse,"delta":1,"pace":0.1,"limits":{"frame_events_max":2},"network":"session","delay_us'
            '_min":200,"delay_us_max":2000,"duplicate":0.0,"half_open":0.0,"stall":0.0,"sync_us_min'
            '":100,"sync_us_max":2000,"together":false,"survive":0.0,"torn":0.0,"clock_error_us":0,'
            '"rates":{"pause":0.5},"quiet":0.0,"period_ms":500,"down_ms_min":2500,"down_ms_max":450'
            '0,"outage_ms":600,"relapse":0.0,"whole_core":1.0,"inner_losses":0.0,"inner_cuts":0.0,"'
            'safety_ms":9000,"liveness_ms":45000,"operations_max":102,"domain":4,"pubends":3,"publi'
            'shers":1,"subscribers":3,"publish_rate":20.0,"batch_max":1,"churn_rate":2.5,"durable":'
            '0.5,"total":0.0,"past":0.6,"best_effort":0.0,"late_pubends":0.6,"rivals":0.0,"outside"'
            ':0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.0,"re'
            'ads":0.0,"roam":0.0,"flee":0.0,"credit_max":20,"expiry":true,"expiry_s":604800,"retent'
            'ion_s":0}'
        ),
    ),
    Regression(
        "a session over relays ended whenever a link on its way was full, and never lived for long",
        (
            '{"seed":263,"cells":2,"shape":"line","fan_out":4,"brokers_per_cell":2,"mixed_cells":fa'
            'lse,"delta":1,"pace":0.1,"limits":{"queue_bytes_max":300},"network":"session","delay_u'
            's_min":2500,"delay_us_max":5000,"duplicate":0.0,"half_open":0.0,"stall":0.8,"sync_us_m'
            'in":100,"sync_us_max":1000,"together":false,"survive":0.0,"torn":0.0,"clock_error_us":'
            '0,"rates":{"slow client":4.0},"quiet":0.1,"period_ms":400,"down_ms_min":0,"down_ms_max'
            '":800,"outage_ms":600,"relapse":0.0,"whole_core":1.0,"inner_losses":0.5,"inner_cuts":0'
            '.2,"safety_ms":3000,"liveness_ms":15000,"operations_max":1000000,"domain":4,"pubends":'
            '2,"publishers":2,"subscribers":1,"publish_rate":40.0,"batch_max":1,"churn_rate":1.0,"d'
            'urable":0.0,"total":0.5,"past":0.0,"best_effort":0.0,"late_pubends":0.0,"rivals":0.0,"'
            'outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia"'
            ':0.0,"reads":0.0,"roam":0.0,"flee":0.0,"credit_max":20,"expiry":false,"expiry_s":60480'
            '0,"retention_s":0}'
        ),
        mark="relay has a full next hop",
    ),
    Regression(
        "a log was released under a durable subscription of which no report had come before a crash",
        (
            '{"seed":3334,"cells":2,"shape":"line","fan_out":4,"brokers_per_cell":2,"mixed_cells":f'
            'alse,"delta":1,"pace":0.2,"limits":{},"network":"datagram","delay_us_min":200,"delay_u'
            's_max":2000,"duplicate":0.0,"half_open":0.0,"stall":0.0,"sync_us_min":1000,"sync_us_ma'
            'x":1000,"together":false,"survive":0.0,"torn":0.0,"clock_error_us":0,"rates":{"crash i'
            'nside a sync":0.25,"pause":0.25,"cut":2.0},"quiet":0.4,"period_ms":400,"down_ms_min":0'
            ',"down_ms_max":1600,"outage_ms":600,"relapse":0.0,"whole_core":1.0,"inner_losses":0.0,'
            '"inner_cuts":0.2,"safety_ms":4000,"liveness_ms":60000,"operations_max":58,"domain":4,"'
            'pubends":3,"publishers":5,"subscribers":1,"publish_rate":20.0,"batch_max":3,"churn_rat'
            'e":1.5,"durable":1.0,"total":0.0,"past":0.0,"best_effort":0.0,"late_pubends":0.3,"riva'
            'ls":0.0,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,'
            '"amnesia":0.0,"reads":1.0,"roam":0.0,"flee":0.0,"credit_max":20,"expiry":false,"expiry'
            '_s":604800,"retention_s":0}'
        ),
    ),
    Regression(
        "a client that had come to a pubend elsewhere, and came home, was taken for one that missed it",
        (
            '{"seed":2914,"cells":2,"shape":"random","fan_out":4,"brokers_per_cell":3,"mixed_cells"'
            ':false,"delta":3,"pace":0.2,"limits":{},"network":"session","delay_us_min":50,"delay_u'
            's_max":2000,"duplicate":0.0,"half_open":0.0,"stall":0.0,"sync_us_min":1000,"sync_us_ma'
            'x":20000,"together":false,"survive":0.0,"torn":0.0,"clock_error_us":0,"rates":{"crash"'
            ':2.0,"crash inside a sync":0.25,"pause":2.0},"quiet":0.25,"period_ms":400,"down_ms_min'
            '":0,"down_ms_max":1600,"outage_ms":600,"relapse":0.0,"whole_core":1.0,"inner_losses":0'
            '.0,"inner_cuts":0.0,"safety_ms":4000,"liveness_ms":45000,"operations_max":1000000,"dom'
            'ain":3,"pubends":4,"publishers":4,"subscribers":2,"publish_rate":20.0,"batch_max":1,"c'
            'hurn_rate":0.0,"durable":0.5,"total":0.0,"past":0.0,"best_effort":0.0,"late_pubends":0'
            '.6,"rivals":0.0,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_ra'
            'te":0.0,"amnesia":0.0,"reads":0.0,"roam":0.0,"flee":0.5,"credit_max":100,"expiry":fals'
            'e,"expiry_s":604800,"retention_s":0}'
        ),
        mark="subscription moved here",
    ),
    Regression(
        "what was said before a session moved to its link was sent over the link",
        (
            '{"seed":2334,"cells":15,"shape":"broom","fan_out":4,"brokers_per_cell":1,"mixed_cells"'
            ':false,"delta":4,"pace":0.2,"limits":{"nack_span_ms":5,"queue_bytes_max":300,"segments'
            '_max":1,"sets_per_session_max":1},"network":"session","delay_us_min":50,"delay_us_max"'
            ':500,"duplicate":0.1,"half_open":0.3,"stall":0.0,"sync_us_min":20,"sync_us_max":2000,"'
            'together":true,"survive":1.0,"torn":0.2,"clock_error_us":0,"rates":{"crash":2.0,"crash'
            ' inside a sync":0.25,"cut":0.25,"one-way cut":0.75,"reset":2.0,"clock jump":0.75,"slow'
            ' client":0.25},"quiet":0.4,"period_ms":200,"down_ms_min":0,"down_ms_max":1600,"outage_'
            'ms":600,"relapse":0.0,"whole_core":0.5,"inner_losses":0.0,"inner_cuts":0.2,"safety_ms"'
            ':4000,"liveness_ms":60000,"operations_max":1000000,"domain":3,"pubends":2,"publishers"'
            ':4,"subscribers":7,"publish_rate":20.0,"batch_max":8,"churn_rate":0.25,"durable":0.5,"'
            'total":0.0,"past":0.6,"best_effort":0.3,"late_pubends":0.0,"rivals":0.0,"outside":0.0,'
            '"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.0,"reads":'
            '0.0,"roam":0.5,"flee":0.2,"credit_max":100,"expiry":false,"expiry_s":604800,"retention'
            '_s":0}'
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
    Regression(
        "a gap was told over what had come live while a strand joined, and then that",
        json=(
            '{"seed":8326,"cells":5,"shape":"star","fan_out":2,"brokers_per_cell":2,"mixed_cells":f'
            'alse,"delta":1,"pace":0.1,"limits":{"frame_events_max":2,"nack_window":1,"read_chunk_b'
            'ytes":1,"segments_max":2,"sets_per_session_max":1,"legacy_ttl_s":2,"expire_after_s":2,'
            '"hold_ttl_s":1},"network":"session","delay_us_min":250,"delay_us_max":500,"duplicate":'
            '0.0,"half_open":0.0,"stall":0.8,"sync_us_min":100,"sync_us_max":1000,"together":false,'
            '"survive":0.5,"torn":0.0,"clock_error_us":0,"rates":{"pause":0.5,"cut":0.5,"client los'
            's":0.2},"quiet":0.0,"period_ms":500,"down_ms_min":2500,"down_ms_max":4500,"outage_ms":'
            '600,"relapse":0.0,"whole_core":1.0,"inner_losses":0.0,"inner_cuts":0.0,"safety_ms":900'
            '0,"liveness_ms":45000,"operations_max":1000000,"domain":4,"pubends":2,"publishers":4,"'
            'subscribers":4,"publish_rate":20.0,"batch_max":8,"churn_rate":2.5,"durable":1.0,"total'
            '":0.5,"past":0.3,"best_effort":0.0,"late_pubends":0.6,"rivals":0.0,"outside":0.02,"wid'
            'en_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.3,"reads":2.0,'
            '"roam":0.2,"flee":0.0,"credit_max":100,"expiry":true,"expiry_s":604800,"retention_s":0'
            "}"
        ),
    ),
    Regression(
        "a filter was changed before a younger pubend had begun, and events were missed there",
        json=(
            '{"seed":9168,"cells":15,"shape":"fan","fan_out":2,"brokers_per_cell":1,"mixed_cells":fa'
            'lse,"delta":0,"pace":0.2,"limits":{},"network":"datagram","delay_us_min":50,"delay_us_m'
            'ax":10000,"duplicate":0.0,"half_open":0.8,"stall":0.3,"sync_us_min":1000,"sync_us_max":'
            '2000,"together":false,"survive":0.0,"torn":0.2,"clock_error_us":1000,"rates":{"crash":0'
            '.25,"pause":0.75,"cut":2.0,"one-way cut":2.0,"loss":2.0,"clock jump":0.75,"client loss"'
            ':0.75,"one-way side cut":0.25,"cell isolated":0.5},"quiet":0.4,"period_ms":200,"down_ms'
            '_min":0,"down_ms_max":1600,"outage_ms":1200,"relapse":0.3,"whole_core":1.0,"inner_losse'
            's":0.5,"inner_cuts":0.0,"safety_ms":4000,"liveness_ms":60000,"operations_max":1000000,"'
            'domain":3,"pubends":2,"publishers":4,"subscribers":5,"publish_rate":20.0,"batch_max":1,'
            '"churn_rate":5.0,"durable":0.5,"total":0.0,"past":0.3,"best_effort":0.0,"late_pubends":'
            '0.0,"rivals":0.0,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_ra'
            'te":0.0,"amnesia":0.0,"reads":1.0,"roam":0.0,"flee":0.2,"credit_max":1,"expiry":false,"'
            'expiry_s":604800,"retention_s":0}'
        ),
    ),
    Regression(
        "a client whose connection was lost before a stream had begun asked for less than it had at first",
        json=(
            '{"seed":74,"cells":5,"shape":"line","fan_out":3,"brokers_per_cell":2,"mixed_cells":fals'
            'e,"delta":1,"pace":0.1,"limits":{"delta_log_max":0,"nack_window":1},"network":"datagram'
            '","delay_us_min":50,"delay_us_max":2000,"duplicate":0.1,"half_open":0.0,"stall":0.8,"sy'
            'nc_us_min":100,"sync_us_max":1000,"together":false,"survive":0.5,"torn":0.0,"clock_erro'
            'r_us":10000000,"rates":{"crash inside a sync":4.0,"cut":4.0,"one-way cut":1.5,"loss":0.'
            '5,"client loss":1.0,"slow client":4.0},"quiet":0.4,"period_ms":500,"down_ms_min":0,"dow'
            'n_ms_max":4000,"outage_ms":600,"relapse":0.0,"whole_core":0.0,"inner_losses":0.5,"inner'
            '_cuts":0.0,"safety_ms":7000,"liveness_ms":45000,"operations_max":1000000,"domain":4,"pu'
            'bends":3,"publishers":3,"subscribers":2,"publish_rate":20.0,"batch_max":1,"churn_rate":'
            '5.0,"durable":0.5,"total":0.2,"past":0.6,"best_effort":0.3,"late_pubends":0.3,"rivals":'
            '0.5,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amne'
            'sia":0.0,"reads":2.0,"roam":0.5,"flee":0.0,"credit_max":100,"expiry":false,"expiry_s":1'
            ',"retention_s":1}'
        ),
    ),
    Regression(
        "the end of a host's older stay took the log from a subscription that was just told where it begins",
        json=(
            '{"seed":824,"cells":5,"shape":"broom","fan_out":2,"brokers_per_cell":3,"mixed_cells":tr'
            'ue,"delta":0,"pace":0.2,"limits":{},"network":"session","delay_us_min":50,"delay_us_max'
            '":3000,"duplicate":0.01,"half_open":0.3,"stall":0.8,"sync_us_min":20,"sync_us_max":1000'
            ',"together":false,"survive":0.0,"torn":0.0,"clock_error_us":1000,"rates":{"crash inside'
            ' a sync":2.0,"one-way cut":0.25,"reset":0.25,"clock jump":0.75,"client loss":2.0,"cell '
            'crash":0.25,"side cut":1.0,"one-way side cut":1.0},"quiet":0.25,"period_ms":200,"down_m'
            's_min":0,"down_ms_max":100,"outage_ms":1200,"relapse":0.3,"whole_core":0.0,"inner_losse'
            's":0.0,"inner_cuts":0.5,"safety_ms":6000,"liveness_ms":60000,"operations_max":1000000,"'
            'domain":4,"pubends":2,"publishers":2,"subscribers":7,"publish_rate":6.0,"batch_max":3,"'
            'churn_rate":1.5,"durable":1.0,"total":0.0,"past":0.3,"best_effort":0.0,"late_pubends":0'
            '.3,"rivals":0.0,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rat'
            'e":0.0,"amnesia":0.3,"reads":0.3,"roam":0.5,"flee":0.0,"credit_max":20,"expiry":false,"'
            'expiry_s":604800,"retention_s":1}'
        ),
    ),
    Regression(
        "the alarm rang for a log that had nothing more below where a subscription with the oldest begins",
        json=(
            '{"seed":1444,"cells":5,"shape":"random","fan_out":3,"brokers_per_cell":1,"mixed_cells":'
            'false,"delta":3,"pace":0.1,"limits":{},"network":"datagram","delay_us_min":200,"delay_u'
            's_max":500,"duplicate":0.0,"half_open":0.8,"stall":0.3,"sync_us_min":100,"sync_us_max":'
            '20000,"together":false,"survive":0.5,"torn":0.0,"clock_error_us":100000,"rates":{"crash'
            '":4.0,"crash inside a sync":4.0,"pause":0.5,"one-way cut":4.0,"permanent cut":1.5,"loss'
            '":0.5,"clock jump":1.5,"client loss":1.0,"side cut":2.0,"one-way side cut":1.0,"cell is'
            'olated":0.5},"quiet":0.25,"period_ms":500,"down_ms_min":0,"down_ms_max":4000,"outage_ms'
            '":300,"relapse":0.3,"whole_core":1.0,"inner_losses":0.2,"inner_cuts":0.2,"safety_ms":70'
            '00,"liveness_ms":45000,"operations_max":1000000,"domain":4,"pubends":2,"publishers":3,"'
            'subscribers":4,"publish_rate":20.0,"batch_max":3,"churn_rate":1.5000000000000002,"durab'
            'le":1.0,"total":0.0,"past":0.3,"best_effort":0.0,"late_pubends":0.0,"rivals":0.5,"outsi'
            'de":0.02,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":0.0,'
            '"reads":2.0,"roam":0.0,"flee":0.0,"credit_max":100,"expiry":false,"expiry_s":1,"retenti'
            'on_s":0}'
        ),
    ),
    Regression(
        "the alarm rang for a subscription whose client has left its home, as the new one cannot claim it yet",
        json=(
            '{"seed":30115,"cells":5,"shape":"line","fan_out":3,"brokers_per_cell":3,"mixed_cells":t'
            'rue,"delta":0,"pace":0.1,"limits":{"reads_per_shb_max":2,"regimes_kept":1,"table_conjun'
            'ctions_max":3},"network":"datagram","delay_us_min":50,"delay_us_max":2000,"duplicate":0'
            '.0,"half_open":0.0,"stall":0.8,"sync_us_min":20,"sync_us_max":2000,"together":false,"su'
            'rvive":0.5,"torn":0.2,"clock_error_us":100000,"rates":{"damage":2.0,"crash":2.0,"client'
            ' loss":4.0,"cell crash":2.0,"barrier isolated":1.0},"quiet":0.25,"period_ms":200,"down_'
            'ms_min":0,"down_ms_max":50,"outage_ms":1200,"relapse":0.6,"whole_core":0.5,"inner_losse'
            's":0.0,"inner_cuts":0.0,"safety_ms":2000,"liveness_ms":45000,"operations_max":1000000,"'
            'domain":3,"pubends":4,"publishers":2,"subscribers":1,"publish_rate":80.0,"batch_max":1,'
            '"churn_rate":6.0,"durable":1.0,"total":0.0,"past":0.6,"best_effort":0.0,"late_pubends":'
            '0.0,"rivals":0.0,"outside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_ra'
            'te":0.0,"amnesia":0.3,"reads":4.0,"roam":0.2,"flee":0.5,"credit_max":20,"expiry":false,'
            '"expiry_s":604800,"retention_s":3600}'
        ),
    ),
    Regression(
        "a simulated reader chased the end of a log that silence moves on for ever, where the library reads up to where it was",
        json=(
            '{"seed":5604,"cells":5,"shape":"broom","fan_out":2,"brokers_per_cell":3,"mixed_cells":'
            'false,"delta":1,"pace":0.1,"limits":{},"network":"datagram","delay_us_min":200,"delay_'
            'us_max":10000,"duplicate":0.1,"half_open":0.0,"stall":0.3,"sync_us_min":1000,"sync_us_'
            'max":2000,"together":false,"survive":0.0,"torn":0.0,"clock_error_us":10000000,"rates":'
            '{"crash":1.5,"crash inside a sync":4.0,"cut":4.0,"permanent cut":0.5,"clock jump":4.0,'
            '"client loss":0.5,"cell crash":0.5,"side cut":2.0},"quiet":0.25,"period_ms":400,"down_'
            'ms_min":0,"down_ms_max":4000,"outage_ms":300,"relapse":0.3,"whole_core":1.0,"inner_los'
            'ses":0.0,"inner_cuts":0.0,"safety_ms":2000,"liveness_ms":45000,"operations_max":100000'
            '0,"domain":2,"pubends":3,"publishers":4,"subscribers":7,"publish_rate":40.0,"batch_max'
            '":1,"churn_rate":0.5,"durable":1.0,"total":0.2,"past":0.6,"best_effort":0.0,"late_pube'
            'nds":0.3,"rivals":0.0,"outside":0.02,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"s'
            'tage_rate":0.0,"amnesia":0.3,"reads":2.0,"roam":0.5,"flee":0.0,"credit_max":5,"expiry"'
            ':false,"expiry_s":604800,"retention_s":3600}'
        ),
    ),
    Regression(
        "a crash lost when a broker had heard of a pubend, and a filter that was changed after it was owed less",
        json=(
            '{"seed":5797,"cells":3,"shape":"random","fan_out":4,"brokers_per_cell":1,"mixed_cells"'
            ':false,"delta":2,"pace":0.5,"limits":{"nack_window":2,"sets_per_session_max":2},"netwo'
            'rk":"datagram","delay_us_min":200,"delay_us_max":5000,"duplicate":0.1,"half_open":0.8,'
            '"stall":0.8,"sync_us_min":20,"sync_us_max":2000,"together":true,"survive":0.0,"torn":0'
            '.2,"clock_error_us":10000000,"rates":{"crash inside a sync":0.8,"cut":0.8,"client loss'
            '":0.3,"slow client":0.3},"quiet":0.1,"period_ms":1000,"down_ms_min":0,"down_ms_max":40'
            '00,"outage_ms":600,"relapse":0.0,"whole_core":1.0,"inner_losses":0.5,"inner_cuts":0.5,'
            '"safety_ms":10000,"liveness_ms":105000,"operations_max":1000000,"domain":4,"pubends":4'
            ',"publishers":5,"subscribers":1,"publish_rate":16.0,"batch_max":3,"churn_rate":4.0,"du'
            'rable":1.0,"total":0.0,"past":0.6,"best_effort":0.0,"late_pubends":0.6,"rivals":0.0,"o'
            'utside":0.0,"widen_rate":0.0,"repeat_rate":0.0,"stagers":0,"stage_rate":0.0,"amnesia":'
            '0.1,"reads":0.0,"roam":0.2,"flee":0.5,"credit_max":1,"expiry":false,"expiry_s":604800,'
            '"retention_s":0}'
        ),
    ),
)
"""Newest last."""
